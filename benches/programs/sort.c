/* Conditional branches that are hard to guess, and calls through a pointer. */
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

int main(void)
{
    static int values[1500];
    unsigned seed = 1;
    for (int i = 0; i < 1500; i++) {
        seed = seed * 1103515245 + 12345;
        values[i] = (int)(seed >> 8);
    }
    qsort(values, 1500, sizeof *values, compare);
    printf("%d\n", values[750]);
    return 0;
}
