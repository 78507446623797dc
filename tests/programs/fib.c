/* A long run of calls and returns. */
#include <stdio.h>

#ifndef N
#define N 24
#endif

static int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

int main(void)
{
    printf("%d\n", fib(N));
    return 0;
}
