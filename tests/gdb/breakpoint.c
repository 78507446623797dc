// Breakpoints on lines that are come to by steps, by jumps back and by calls.
static volatile int total;

__attribute__((noinline)) static void add(int n) {
    total += n;
}

int main(void) {
    for (int i = 0; i < 3; i++) {
        add(i);
        total++;
    }
    add(10);
    return total != 16;
}
