/* Threads that take turns, a signal handler, and functions that longjmp leaves. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long shared;
static volatile int seen;
static jmp_buf back;

__attribute__((noinline)) long add(long who, long k) {
    pthread_mutex_lock(&mutex);
    shared += k;
    long result = shared * 10 + who;
    pthread_mutex_unlock(&mutex);
    return result;
}

static void handler(int number) { seen += number; }

__attribute__((noinline)) int deep(int n) {
    if (n == 0)
        longjmp(back, 3);
    return deep(n - 1) + 1;
}

static void *run(void *who) {
    for (long i = 0; i < 50; i++) {
        printf("%ld\n", add((long)who, i));
        if (i % 10 == 0)
            usleep(100);
    }
    return NULL;
}

int main(void) {
    signal(SIGUSR1, handler);
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < 5; i++) {
        raise(SIGUSR1);
        if (setjmp(back) == 0)
            deep(3);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return seen != 5 * SIGUSR1;
}
