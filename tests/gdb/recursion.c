// A recursion, stepped over and into.
static volatile int n;

__attribute__((noinline)) static int factorial(int a) {
    if (a == 0)
        return 1;
    int rest = factorial(a - 1);
    n++;
    return a * rest;
}

int main(void) {
    n = 0;
    int a = factorial(4);
    int b = factorial(3);
    return a + b == 0;
}
