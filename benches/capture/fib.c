/* Calls and returns, and little else. */
#include <stdio.h>

__attribute__((noinline)) static unsigned fib(unsigned n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

int main(void)
{
    printf("%u\n", fib(41));
    return 0;
}
