/* Conditional branches that are hard to guess, and calls through a pointer. */
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 6000000 };

static int compare(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

int main(void)
{
    static int values[COUNT];
    unsigned seed = 1;
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 1103515245 + 12345;
        values[i] = (int)(seed >> 8);
    }
    qsort(values, COUNT, sizeof *values, compare);
    printf("%d\n", values[COUNT / 2]);
    return 0;
}
