/* Four threads that take turns at a lock and a condition. */
#include <pthread.h>
#include <stdio.h>

#define THREADS 4
#define ROUNDS 20

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static int turn, total;

static int work(int id, int round)
{
    int sum = 0;
    for (int i = 0; i < 50; i++)
        sum += i * id + round;
    return sum & 1;
}

static void *worker(void *argument)
{
    int id = (int)(long)argument;
    for (int round = 0; round < ROUNDS; round++) {
        int odd = work(id, round);
        pthread_mutex_lock(&lock);
        while (turn != id)
            pthread_cond_wait(&turn_changed, &lock);
        total += 1 + odd;
        turn = (turn + 1) % THREADS;
        pthread_cond_broadcast(&turn_changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, worker, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("total %d\n", total >= THREADS * ROUNDS);
    return 0;
}
