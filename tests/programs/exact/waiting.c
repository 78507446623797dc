// Threads that wait for each other by everything that the C library has for it.
#include <pthread.h>
#include <stdio.h>
#include <semaphore.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int q[8], h, t;
static sem_t s;
static pthread_barrier_t b;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static long sum;

static void *p(void *a) {
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&m);
        while (t - h == 8)
            pthread_cond_wait(&c, &m);
        q[t++ % 8] = i;
        pthread_cond_broadcast(&c);
        pthread_mutex_unlock(&m);
    }
    return a;
}

static void *k(void *a) {
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&m);
        while (t == h)
            pthread_cond_wait(&c, &m);
        sum += q[h++ % 8];
        pthread_cond_broadcast(&c);
        pthread_mutex_unlock(&m);
        sem_post(&s);
    }
    pthread_barrier_wait(&b);
    pthread_rwlock_rdlock(&rw);
    pthread_rwlock_unlock(&rw);
    return a;
}

int main() {
    sem_init(&s, 0, 0);
    pthread_barrier_init(&b, 0, 3);
    pthread_t x[4];
    pthread_create(x, 0, p, 0);
    pthread_create(x + 1, 0, k, 0);
    pthread_create(x + 2, 0, p, 0);
    pthread_create(x + 3, 0, k, 0);
    for (int i = 0; i < 1000; i++)
        sem_wait(&s);
    pthread_barrier_wait(&b);
    for (int i = 0; i < 4; i++)
        pthread_join(x[i], 0);
    printf("%ld\n", sum);
    return 0;
}
