// Leaves the same function by siglongjmp out of a handler, and by exceptions, many times.
#include <csetjmp>
#include <csignal>

static sigjmp_buf back;
volatile int count;

__attribute__((noinline)) static void fault() { *(volatile int *)16 = count; }

__attribute__((noinline)) static void leave() { siglongjmp(back, 1); }

static void handler(int) { leave(); }

__attribute__((noinline)) static void fail(int i) { throw i; }

__attribute__((noinline)) static void fail_deeper(int i) {
    fail(i);
    count++;
}

__attribute__((noinline)) static int last(int x) { return x + count; }

int main() {
    signal(SIGSEGV, handler);
    for (volatile int i = 0; i < 100; i++)
        if (!sigsetjmp(back, 1))
            fault();
    for (volatile int i = 0; i < 100; i++) {
        try {
            fail_deeper(i);
        } catch (int) {
        }
    }
    return last(0);
}
