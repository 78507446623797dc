// Robust mutexes whose owners end, and mutexes that inherit priorities.
#include "order.h"
static pthread_mutex_t robust, inherits;
static volatile long recovered;
static int rounds;

static void get(pthread_mutex_t *mutex)
{
    if (pthread_mutex_lock(mutex) == EOWNERDEAD) {
        recovered++;
        note(99);
        pthread_mutex_consistent(mutex);
    }
}

static void *run(void *number)
{
    for (int i = 0; i < 20; i++) {
        get(&robust);
        note((unsigned long)number);
        if (i == 5 + (long)number)
            return 0;
        work(100);
        pthread_mutex_unlock(&robust);
        if (pthread_mutex_trylock(&inherits))
            pthread_mutex_lock(&inherits), note(50);
        note((unsigned long)number + 8);
        work(300);
        pthread_mutex_unlock(&inherits);
    }
    return 0;
}

int main(int count, char **args)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inherits, &kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setprotocol(&kind, atoi(args[1]) % 2 ? PTHREAD_PRIO_NONE : PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&robust, &kind);
    for (rounds = 0; rounds < atoi(args[1]) * 2; rounds++)
        in_threads(5, run);
    return outcome((unsigned long)recovered);
}
