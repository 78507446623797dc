// Loops to get out of, and lines to advance to.
static volatile int n;

__attribute__((noinline)) static int body(int i) {
    n += i;
    return n;
}

int main(void) {
    n = 0;
    for (int i = 0; i < 4; i++) {
        body(i);
        n--;
    }
    int j = 0;
    while (j < 3) {
        j++;
    }
    n = body(j);
    return n == 0;
}
