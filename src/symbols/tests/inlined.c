#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int square(int x)
{
    return x * x;
}

static inline int sum_of_squares(const int *values, int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += square(values[i]);
    return sum;
}

__attribute__((noinline)) static int compare(const void *a, const void *b)
{
    const int *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

__attribute__((noinline)) int fibonacci(int n)
{
    if (n < 2)
        return n;
    return fibonacci(n - 1) + fibonacci(n - 2);
}

int main(int argc, char **argv)
{
    int values[64];
    int count = 0;

    for (int i = 1; i < argc && count < 64; i++)
        values[count++] = atoi(argv[i]);
    qsort(values, count, sizeof values[0], compare);
    if (count > 2)
        printf("%d\n", sum_of_squares(values, count));
    else
        puts("give numbers");
    printf("%d\n", fibonacci(count));
    return strlen(argv[0]) == 0;
}
