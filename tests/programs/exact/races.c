// Threads that race without a lock. The outcome is in memory and in the exit status.
#include <pthread.h>
#include <stdatomic.h>
static _Atomic long cells[4];
static volatile long plain, count, go;
static volatile int order[64], next;

static void *race(void *number) {
    long me = (long)number;
    while (!go)
        ;
    for (int i = 0; i < 100000; i++) {
        long old = atomic_load(&cells[me]);
        atomic_compare_exchange_weak(&cells[(me + 1) % 4], &old, old + me);
        plain = plain * 3 + me;
        count++;
        if (i % 1000 == 0)
            order[next++ % 64] = me;
    }
    return number;
}

int main(void) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, race, (void *)i);
    go = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    return plain != 0 && count > 100000 ? 5 : 1;
}
