/* Lets the C library call back, and waits there for its input. */
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

int main(void)
{
    int numbers[] = { 3, 1, 2 };
    qsort(numbers, 3, sizeof numbers[0], ascending);
    puts("ready");
    fflush(stdout);
    return getchar() == EOF;
}
