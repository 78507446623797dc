// SIGTRAP is ignored, caught and blocked where a tracer would use it itself.
#include <signal.h>
#include <stdio.h>
static volatile int count;

static void on_trap(int number) {
    count += number == SIGTRAP;
}

int main(void) {
    sigset_t traps;
    sigemptyset(&traps);
    sigaddset(&traps, SIGTRAP);
    signal(SIGTRAP, SIG_IGN);
    raise(SIGTRAP);
    printf("%d\n", signal(SIGTRAP, on_trap) == SIG_IGN);
    raise(SIGTRAP);
    sigprocmask(SIG_BLOCK, &traps, 0);
    raise(SIGTRAP);
    printf("%d\n", count);
    sigprocmask(SIG_UNBLOCK, &traps, 0);
    printf("%d\n", count);
    __asm__ volatile("int3");
    printf("%d\n", count);
    return 0;
}
