// Nested calls, to be left in both directions.
static volatile int n;

__attribute__((noinline)) static int inner(int a) {
    n += a;
    return n;
}

__attribute__((noinline)) static int middle(int a) {
    int b = inner(a);
    return b + inner(a + 1);
}

__attribute__((noinline)) static int outer(int a) {
    return middle(a) + middle(a + 2);
}

int main(void) {
    int sum = outer(1);
    sum += outer(10);
    return sum == 0;
}
