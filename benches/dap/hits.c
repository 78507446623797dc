// A billion instructions, and a line that is executed 10^5 times.
#include <stdio.h>

static volatile long sum;

static void add(long i) {
    sum += i; // hits
}

int main(void) {
    for (long i = 0; i < 100000; i++) {
        for (long j = 0; j < 2500; j++)
            sum ^= j;
        add(i);
    }
    printf("%ld\n", sum);
    return 0;
}
