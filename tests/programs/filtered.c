// Functions that are entered and left by branches only, in every way, for filters by address.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))

static int calls;

APART int fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

APART int compare(const void *a, const void *b) {
    calls++;
    return *(const int *)a - *(const int *)b;
}

APART int leaf(int n) {
    return n * 3 + fibonacci(n % 7);
}

APART int worker(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        sum += leaf(i);
        if (sum & 1)
            sum += (int)strlen("hello") + i;
    }
    return sum;
}

APART int the_end(int n) {
    puts("the end begins");
    return n + 1;
}

int main(void) {
    int numbers[50];
    for (int i = 0; i < 50; i++)
        numbers[i] = i * 7919 % 101;
    qsort(numbers, 50, sizeof *numbers, compare);
    int sum = worker(10);
    printf("%d %d %d\n", numbers[3], sum, calls);
    sum = the_end(sum);
    for (int i = 0; i < 20; i++)
        sum += worker(7);
    printf("%d\n", sum);
    return 3;
}
