/* A structure of an unknown size. */
struct hidden;
static int numbers[8];
static struct hidden *hidden = (struct hidden *)numbers;

int main(void)
{
    numbers[3] = 1;
    return hidden == 0;
}
