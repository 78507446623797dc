// Phases between barriers; within one, and after the last of it, the order is free.
#include "order.h"
static pthread_barrier_t barrier;
static volatile long serial[5];
static int rounds;

static void *run(void *number)
{
    for (int i = 0; i < rounds * 20; i++) {
        note((unsigned long)number + (unsigned long)work(200 + 60 * (int)(long)number) % 3);
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            serial[(long)number]++;
        note((unsigned long)number + 16);
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    pthread_barrier_init(&barrier, 0, 5);
    in_threads(5, run);
    return outcome((unsigned long)(serial[0] * 100 + serial[1] * 10 + serial[2]));
}
