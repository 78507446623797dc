// 10^9 instructions in functions of some 100 instructions each.
#include <stdio.h>
#include <stdlib.h>

static volatile long sum;

__attribute__((noinline)) static long leaf(long n) {
    for (long i = 0; i < 16; i++)
        n = n * 31 + (n >> 7);
    return n;
}

__attribute__((noinline)) static long middle(long n) {
    return leaf(n) ^ leaf(n + 1);
}

int main(int argc, char **argv) {
    long times = argc > 1 ? atol(argv[1]) : 5000000;
    for (long i = 0; i < times; i++)
        sum += middle(i);
    if (argc > 2)
        sum += leaf(atol(argv[2]));
    printf("%ld\n", sum);
    return 0;
}
