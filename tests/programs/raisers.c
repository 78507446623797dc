// Three threads that send signals to themselves, all at a time.

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#define THREADS 3
#define TIMES 5
static atomic_int handled;
static pthread_barrier_t together;
static void on_signal(int number) {
    (void)number;
    handled++;
}
static void *run(void *p) {
    for (int i = 0; i < TIMES; i++) {
        pthread_barrier_wait(&together);
        raise(SIGUSR1);
    }
    return p;
}
int main(void) {
    pthread_t t[THREADS];
    signal(SIGUSR1, on_signal);
    pthread_barrier_init(&together, 0, THREADS);
    for (int i = 0; i < THREADS; i++) pthread_create(&t[i], 0, run, 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], 0);
    printf("%d of %d\n", handled, THREADS * TIMES);
    return handled != THREADS * TIMES;
}
