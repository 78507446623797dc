// Breakpoints with conditions and counts.
static volatile int n;

__attribute__((noinline)) static void work(int i) {
    n += i;
}

__attribute__((noinline)) static void odd(int i) {
    work(i);
}

__attribute__((noinline)) static void even(int i) {
    work(i);
}

int main(void) {
    n = 0;
    for (int i = 1; i <= 10; i++) {
        if (i % 2)
            odd(i);
        else
            even(i);
    }
    return n != 55;
}
