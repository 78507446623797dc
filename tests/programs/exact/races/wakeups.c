// Wakeups that are lost: the condition is looked at without the lock.
#include "order.h"
#include <time.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static volatile long made, taken, lost;
static int rounds;

static void *run(void *number)
{
    for (int i = 0; i < rounds * 30; i++) {
        if ((long)number % 2) {
            made++;
            note((unsigned long)number * 8 + 1);
            work(20);
            pthread_cond_signal(&ready);
            continue;
        }
        if (made <= taken) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 50000;
            if (until.tv_nsec >= 1000000000)
                until.tv_sec++, until.tv_nsec -= 1000000000;
            pthread_mutex_lock(&lock);
            if (pthread_cond_timedwait(&ready, &lock, &until))
                lost++, note(7);
            pthread_mutex_unlock(&lock);
        }
        taken++;
        note((unsigned long)number * 8);
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    in_threads(4, run);
    return outcome((unsigned long)lost);
}
