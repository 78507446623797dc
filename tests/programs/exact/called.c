// Threads that wait in the kernel, each in another way, while a debugger calls functions in them.
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t begun;
static int ends, pipes[2];
static volatile int calls;

int twice(int n) {
    calls++;
    return n * 2;
}

static void *waits(void *unused) {
    pthread_barrier_wait(&begun);
    pthread_mutex_lock(&lock);
    while (!ends)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return unused;
}

static void *reads(void *unused) {
    char byte = 0;
    pthread_barrier_wait(&begun);
    return read(pipes[0], &byte, 1) == 1 && byte == 'x' ? unused : "read";
}

static void *sleeps(void *unused) {
    struct timespec long_enough = {0, 300000000};
    pthread_barrier_wait(&begun);
    return nanosleep(&long_enough, 0) == 0 ? unused : "nanosleep";
}

static void ready(void) {
}

int main(void) {
    void *(*const ways[])(void *) = {waits, reads, sleeps};
    pthread_t threads[3];
    pthread_barrier_init(&begun, 0, 4);
    if (pipe(pipes))
        return 1;
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, ways[i], 0);
    pthread_barrier_wait(&begun);
    usleep(50000);
    ready();
    pthread_mutex_lock(&lock);
    ends = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    write(pipes[1], "x", 1);
    int failures = 0;
    for (int i = 0; i < 3; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        failures += failed != 0;
    }
    printf("%d calls, %d failures\n", calls, failures);
}
