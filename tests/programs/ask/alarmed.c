/* A loop that only a signal ends. */
#include <signal.h>
#include <sys/time.h>

static volatile int hits;

static void handler(int number)
{
    hits = number;
}

static void work(void)
{
    __asm__ volatile("1: cmpl $0, %0\n\tje 1b" : : "m"(hits) : "cc");
}

int main(void)
{
    struct itimerval once = {.it_value = {.tv_usec = 8000}};
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &once, 0);
    work();
    return 0;
}
