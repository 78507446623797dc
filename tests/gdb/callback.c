// A library that calls back.
#include <stdlib.h>

static volatile int calls;

static int compare(const void *a, const void *b) {
    calls++;
    return *(const int *)a - *(const int *)b;
}

int main(void) {
    int numbers[] = {3, 1, 2, 5, 4};
    calls = 0;
    qsort(numbers, 5, sizeof *numbers, compare);
    calls++;
    return calls == 0;
}
