// Producers and consumers with a condition variable; the order in which they get the lock counts.
#include "order.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int queue[4], head, tail, rounds;

static void *run(void *number)
{
    int produces = (long)number % 2;
    for (int i = 0; i < rounds * 60; i++) {
        pthread_mutex_lock(&lock);
        while (produces ? tail - head == 4 : tail == head)
            pthread_cond_wait(&changed, &lock);
        if (produces)
            queue[tail++ % 4] = (int)(long)number * 1000 + i;
        else
            note((unsigned long)queue[head++ % 4] * 8 + (unsigned long)number);
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        work(100);
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    in_threads(6, run);
    return outcome((unsigned long)head);
}
