// Optimized code: inlined functions, tail calls, lines in pieces.
static volatile int n;

static inline __attribute__((always_inline)) int twice(int a) {
    n += a;
    return a * 2;
}

__attribute__((noinline)) static int last(int a) {
    n -= a;
    return n;
}

__attribute__((noinline)) static int tail(int a) {
    n = a;
    return last(a + n);
}

__attribute__((noinline)) static int leaf(int a) {
    return twice(a) + twice(a + 1);
}

int main(void) {
    n = 1;
    int b = leaf(n);
    b += tail(b);
    b += leaf(b);
    return b == 0;
}
