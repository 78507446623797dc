// Four threads that add to one number.

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long total;
__attribute__((noinline)) void add(long n) {
    pthread_mutex_lock(&m);
    total += n;
    pthread_mutex_unlock(&m);
}
static void *run(void *p) {
    for (long i = 0; i < 2000; i++) add((long)p);
    usleep(1000);
    return p;
}
int main(void) {
    pthread_t t[4];
    for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, run, (void *)(i + 1));
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    printf("total %ld\n", total);
    return total != 20000;
}
