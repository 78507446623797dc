// Threads that are cancelled: in a call, and anywhere.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void cl(void *a) {
    puts("cleanup");
}

static void *f(void *a) {
    pthread_cleanup_push(cl, 0);
    for (;;)
        sleep(10);
    pthread_cleanup_pop(0);
    return a;
}

static void *g(void *a) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    for (volatile long i = 0;; i++)
        ;
    return a;
}

int main() {
    pthread_t t, u;
    pthread_create(&t, 0, f, 0);
    pthread_create(&u, 0, g, 0);
    usleep(10000);
    pthread_cancel(t);
    pthread_cancel(u);
    void *r;
    pthread_join(t, &r);
    printf("%d\n", r == PTHREAD_CANCELED);
    pthread_join(u, &r);
    printf("%d\n", r == PTHREAD_CANCELED);
    return 0;
}
