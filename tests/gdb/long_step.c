// A line that takes long, and lines that are short.
static volatile int n;

__attribute__((noinline)) static void spin(int rounds) {
    for (int i = 0; i < rounds; i++)
        n += i;
}

int main(void) {
    n = 1;
    spin(2000);
    n = 2;
    for (int i = 0; i < 500; i++) n += i;
    n = 3;
    return 0;
}
