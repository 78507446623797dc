// Dining philosophers with semaphores, who give up where a fork is taken.
#include "order.h"
#include <semaphore.h>
#include <sched.h>
static sem_t forks[5], seats;
static volatile long meals[5], refused;
static int rounds;

static void *run(void *number)
{
    long me = (long)number;
    for (int i = 0; i < rounds * 40; i++) {
        sem_wait(&seats);
        sem_wait(&forks[me]);
        if (sem_trywait(&forks[(me + 1) % 5])) {
            refused++;
            note(100);
        } else {
            meals[me]++;
            note((unsigned long)me);
            work(100);
            sem_post(&forks[(me + 1) % 5]);
        }
        sem_post(&forks[me]);
        sem_post(&seats);
        if (i % 4 == me % 4)
            sched_yield();
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    sem_init(&seats, 0, 3);
    for (int i = 0; i < 5; i++)
        sem_init(&forks[i], 0, 1);
    in_threads(5, run);
    return outcome((unsigned long)refused);
}
