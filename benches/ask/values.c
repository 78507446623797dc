// A million executions of a line with two values, and a value that was computed 10^9 instructions ago.
#include <stdio.h>
#include <stdlib.h>

struct account {
    long id, owner;
};

static volatile long sum;
static struct account accounts[1000];

__attribute__((noinline)) static void add(struct account *a, long amount) {
    a->owner = amount * 3; // hits
    sum += a->owner;
}

int main(int argc, char **argv) {
    long times = argc > 1 ? atol(argv[1]) : 0;
    accounts[7].id = 6 * times + 1;
    for (long i = 0; i < 1000000; i++)
        add(&accounts[i % 1000], i);
    for (long i = 0; i < times * 1000; i++)
        sum ^= i;
    printf("%ld %ld\n", accounts[7].id, sum);
    return 0;
}
