// Nothing is before the beginning.
static volatile int n;

__attribute__((noinline)) static void leaf(void) {
    n++;
}

int main(void) {
    leaf();
    leaf();
    return 0;
}
