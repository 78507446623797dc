// A breakpoint inside of what is stepped over.
static volatile int n;

__attribute__((noinline)) static void deep(void) {
    n++;
    n++;
}

__attribute__((noinline)) static void call(void) {
    n--;
    deep();
    n--;
}

int main(void) {
    call();
    n = 5;
    call();
    return 0;
}
