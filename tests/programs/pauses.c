/* Works, says so, waits for a byte or the end of its input, works again. */
#include <unistd.h>

#ifndef N
#define N 20
#endif

static volatile int n = N;

__attribute__((noinline)) static int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

int main(void)
{
    char byte = 0;
    volatile int sum = fib(n);
    if (write(1, "ready\n", 6) != 6 || read(0, &byte, 1) < 0)
        return 2;
    sum += fib(n);
    return sum == 0;
}
