/* A signal interrupts a call which then writes how much time is left. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Too large for debug registers. */
struct {
    struct timespec time;
    char rest[200];
} left;
volatile int handled;

static void on_signal(int number)
{
    (void)number;
    handled++;
}

/* The signal is pending, and allowed in the call only. */
static void wait_for_signal(void)
{
    unsigned long allowed = 0;
    struct {
        unsigned long *mask, size;
    } mask = { &allowed, sizeof allowed };
    syscall(SYS_pselect6, 0, NULL, NULL, NULL, &left.time, &mask);
}

int main(void)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGUSR1, on_signal);
    left.time.tv_sec = 100;
    raise(SIGUSR1);
    wait_for_signal();
    printf("handled %d\n", handled);
    return 0;
}
