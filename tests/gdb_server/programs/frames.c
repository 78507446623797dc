/* Inlined functions, tail calls, recursion and callbacks, then an abort. */

#define NOINLINE __attribute__((noinline, noclone))

volatile int input = 3;
volatile int sink;

static inline int square(int n)
{
    int result = n * input;
    sink = result;
    return result;
}

NOINLINE static int leaf(int n)
{
    sink = n;
    return square(n) + 1;
}

NOINLINE static int tail(int n)
{
    sink = n + 1;
    return leaf(n + 2);
}

NOINLINE static int descend(int n)
{
    if (n == 0)
        return tail(input);
    int below = descend(n - 1);
    sink = below;
    return below + square(n);
}

NOINLINE static int apply(int (*each)(int), int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += each(i);
    return sum;
}

int main(void)
{
    int total = descend(input);
    total += apply(leaf, 2);
    total += apply(tail, 2);
    sink = total;
    __builtin_trap();
}
