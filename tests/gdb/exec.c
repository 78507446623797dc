// A program that executes itself.
#include <unistd.h>

static volatile int n;

__attribute__((noinline)) static void first(void) {
    n++;
}

__attribute__((noinline)) static void second(void) {
    n += 2;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        second();
        return 0;
    }
    first();
    execl("/proc/self/exe", argv[0], "again", (char *)0);
    return 1;
}
