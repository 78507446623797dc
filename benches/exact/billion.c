#include <stdio.h>
#include <string.h>
// About a billion instructions after the write that a watchpoint is to find.
static volatile long written, other[64];
static void step(long i) { other[i & 63] += i; }
int main(void) {
    printf("begins\n");
    written = 42;
    for (long i = 0; i < 250000000; i++)
        step(i);
    printf("%ld\n", written + other[5]);
    return 0;
}
