// Threads that wait for each other in loops.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sched.h>
static atomic_int lock;
static int c;
static _Atomic int turn;

static void *f(void *a) {
    for (int i = 0; i < 20000; i++) {
        while (atomic_exchange(&lock, 1))
            __builtin_ia32_pause();
        c++;
        atomic_store(&lock, 0);
    }
    return a;
}

static void *g(void *a) {
    long me = (long)a;
    for (int i = 0; i < 50; i++) {
        while (turn != me)
            ;
        turn = !me;
    }
    return 0;
}

int main() {
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&t[i], 0, f, 0);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], 0);
    printf("%d\n", c);
    pthread_create(&t[0], 0, g, (void *)0);
    pthread_create(&t[1], 0, g, (void *)1);
    pthread_join(t[0], 0);
    pthread_join(t[1], 0);
    puts("done");
    return 0;
}
