// Signals that threads send each other: where they arrive, in code and in calls.
#include "order.h"
#include <signal.h>
#include <time.h>
static pthread_t threads[4];
static volatile int begun;
static volatile long handled, restarted;
static int rounds;

static void handler(int signal, siginfo_t *info, void *context)
{
    handled++;
    note((unsigned long)signal * 64 + (unsigned long)info->si_value.sival_int);
}

static void *run(void *number)
{
    long me = (long)number;
    __sync_fetch_and_add(&begun, 1);
    while (begun < 5)
        usleep(50);
    for (int i = 0; i < rounds * 30; i++) {
        note((unsigned long)me);
        work(200);
        union sigval value = {.sival_int = (int)me * 4 + i % 4};
        if (i % 3 == me % 3)
            pthread_sigqueue(threads[(me + 1 + i) % 4], i % 2 ? SIGUSR1 : SIGRTMIN, value);
        if (i % 5 == me) {
            struct timespec rest = {0, 40000};
            if (nanosleep(&rest, 0))
                restarted++, note(500);
        }
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, 0);
    action.sa_flags |= SA_RESTART;
    sigaction(SIGRTMIN, &action, 0);
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, run, (void *)i);
    __sync_fetch_and_add(&begun, 1);
    /* Joined at the end, so that none is signalled that is gone. */
    sigset_t all;
    sigfillset(&all);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    return outcome((unsigned long)(handled * 100 + restarted));
}
