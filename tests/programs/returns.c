/* Functions that return a value in each of the ways of the ABI. */
#include <stdlib.h>

struct large {
    long of[8];
};

static volatile int source = 41;

__attribute__((noinline)) static int small(void)
{
    return source + 1;
}

__attribute__((noinline)) static double floating(void)
{
    return source / 2.0;
}

__attribute__((noinline)) static struct large in_memory(void)
{
    struct large large = { .of = { source } };
    return large;
}

__attribute__((noinline)) static int depth(int n)
{
    return n == 0 ? source : depth(n - 1) + 1;
}

int main(void)
{
    int sum = small();
    sum += (int)floating();
    sum += (int)in_memory().of[0];
    sum += depth(3);
    return sum == 0;
}
