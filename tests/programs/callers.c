// Threads that call and return without end, until the first thread ends them all.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 6 };

static volatile int ready;

__attribute__((noinline)) static unsigned odd(unsigned n, unsigned (*next)(unsigned)) {
    return n == 0 ? 0 : next(n - 1) + 1;
}

__attribute__((noinline)) static unsigned even(unsigned n) {
    return n == 0 ? 0 : odd(n - 1, even) + 1;
}

static void *call(void *unused) {
    (void)unused;
    __atomic_add_fetch(&ready, 1, __ATOMIC_RELAXED);
    for (volatile unsigned sum = 0;;)
        sum += even(20);
    return 0;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, call, 0);
    while (ready < THREADS)
        usleep(1000);
    usleep(5000);
    _exit(3);
}
