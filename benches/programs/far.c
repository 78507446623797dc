// A history of more than 10^9 instructions, with places to go back to: a function that was called
// once at its beginning, a call that took 10^8 instructions, and a line that took 10 thousand.

static volatile int n;

__attribute__((noinline)) static void early(void) {
    n = 1;
}

__attribute__((noinline)) static int step(int i) {
    return i & 3 ? n + i : n - i;
}

__attribute__((noinline)) static void work(int rounds) {
    for (int i = 0; i < rounds; i++)
        n = step(i);
}

__attribute__((noinline)) static void late(void) {
    n = 2;
}

int main(void) {
    early();
    work(92 * 1000 * 1000);
    work(9100 * 1000);
    n = 3;
    for (int i = 0; i < 1700; i++) n += i;
    late();
    return 0;
}
