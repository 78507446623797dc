/* Recursion and callbacks, with enough work that -O2 keeps the calls. */
#include <stdio.h>
#include <stdlib.h>

typedef int (*visitor)(int value, void *context);

struct tree {
    struct tree *left, *right;
    int value;
};

__attribute__((noinline)) static struct tree *insert(struct tree *t, int value)
{
    if (!t) {
        t = calloc(1, sizeof *t);
        t->value = value;
        return t;
    }
    if (value < t->value)
        t->left = insert(t->left, value);
    else
        t->right = insert(t->right, value);
    return t;
}

__attribute__((noinline)) static int walk(struct tree *t, visitor visit, void *context)
{
    if (!t)
        return 0;
    int seen = walk(t->left, visit, context);
    seen += visit(t->value, context);
    seen += walk(t->right, visit, context);
    return seen;
}

__attribute__((noinline)) static int add(int value, void *context)
{
    *(long *)context += value;
    return 1;
}

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) static long ackermann(long m, long n)
{
    if (m == 0)
        return n + 1;
    if (n == 0)
        return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

int main(void)
{
    int values[] = { 50, 20, 70, 10, 30, 60, 80, 25, 35 };
    int count = sizeof values / sizeof *values;
    struct tree *root = NULL;
    for (int i = 0; i < count; i++)
        root = insert(root, values[i]);
    long sum = 0;
    int seen = walk(root, add, &sum);
    qsort(values, count, sizeof *values, compare);
    printf("%d nodes, sum %ld, first %d, ackermann %ld\n", seen, sum, values[0], ackermann(2, 3));
    return 0;
}
