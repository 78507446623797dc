// A program with breakpoint instructions of its own.
#include <signal.h>

static volatile int traps;

static void on_trap(int number) {
    traps += number;
}

__attribute__((noinline)) static void trap(void) {
    traps++;
    __asm__ volatile("int3");
    traps++;
}

int main(void) {
    signal(SIGTRAP, on_trap);
    trap();
    trap();
    return traps != 14;
}
