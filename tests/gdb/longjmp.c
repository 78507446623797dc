// A jump out of functions.
#include <setjmp.h>

static jmp_buf place;
static volatile int n;

__attribute__((noinline)) static void thrower(int how) {
    n++;
    longjmp(place, how);
}

__attribute__((noinline)) static void around(int how) {
    n++;
    thrower(how);
    n = 100;
}

int main(void) {
    int how = setjmp(place);
    if (how < 2)
        around(how + 1);
    n++;
    n++;
    return n;
}
