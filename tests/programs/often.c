/* Calls a function so often that gdb does not look at all calls in the time of a test. */

static volatile long sum;

__attribute__((noinline)) void often(int number)
{
    sum += number;
}

int main(void)
{
    for (int number = 0; number < 1000000; number++) {
        often(number);
    }
    return sum < 0;
}
