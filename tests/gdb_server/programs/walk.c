/* Recursion, callbacks, a loop, and a crash: every kind of frame that a walk back meets. */

typedef int (*visitor)(int);

static int total;
static int *target = &total;

static int factorial(int n)
{
    if (n <= 1)
        return 1;
    return n * factorial(n - 1);
}

static int twice(int n)
{
    int result = n + n;
    return result;
}

static int visit(visitor each, int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += each(i);
    return sum;
}

static void store(int value)
{
    *target = value;
}

static int middle(int n)
{
    int a = factorial(n);
    int b = visit(twice, 3);
    return a + b;
}

int main(void)
{
    int first = middle(4);
    store(first);
    target = 0;
    int second = twice(first);
    store(second);
    return second;
}
