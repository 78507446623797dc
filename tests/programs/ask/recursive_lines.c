// A recursion in which a line ends with the call, so that the next one begins at its return.
static volatile int done;

static void count(int n)
{
    if (n == 0)
        return;
    count(n - 1); // the call
    done = n;     // after it
}

int main(void)
{
    count(3);
    return done != 3;
}
