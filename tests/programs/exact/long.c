// Runs for a while, and never writes to a variable.
#include <stdio.h>
int never;
static volatile unsigned sum;

int main(void) {
    for (unsigned i = 0; i < 400 * 1000 * 1000; i++)
        sum += i;
    printf("%u %d\n", sum, never);
    return 0;
}
