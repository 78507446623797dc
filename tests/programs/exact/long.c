// Runs for a while, and never uses some memory.
#include <stdio.h>
int never[64];
static volatile unsigned sum;

int main(void) {
    for (unsigned i = 0; i < 400 * 1000 * 1000; i++)
        sum += i;
    printf("%u\n", sum);
    return 0;
}
