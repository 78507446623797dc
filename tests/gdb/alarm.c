// A timer's signal breaks into a loop.
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t rung;

static void on_alarm(int number) {
    rung = number;
}

__attribute__((noinline)) static void before(void) {
    __asm__ volatile("");
}

__attribute__((noinline)) static void after(void) {
    __asm__ volatile("");
}

int main(void) {
    struct itimerval soon = {{0, 0}, {0, 10000}};
    signal(SIGALRM, on_alarm);
    before();
    setitimer(ITIMER_REAL, &soon, 0);
    while (!rung)
        ;
    after();
    return 0;
}
