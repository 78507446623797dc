// Threads that take turns, so that each run is the same.
#include <pthread.h>
#include <sched.h>

static volatile long turn;
static volatile int n;

__attribute__((noinline)) static void work(long self) {
    n += (int)self;
    n++;
}

__attribute__((noinline)) static void pass(long self) {
    turn = (self + 1) % 3;
}

static void *run(void *argument) {
    long self = (long)argument;
    for (int i = 0; i < 3; i++) {
        while (turn != self)
            sched_yield();
        work(self);
        pass(self);
    }
    return 0;
}

__attribute__((noinline)) static void done(void) {
    n = 0;
}

int main(void) {
    pthread_t other[2];
    pthread_create(&other[0], 0, run, (void *)1);
    pthread_create(&other[1], 0, run, (void *)2);
    run((void *)0);
    pthread_join(other[0], 0);
    pthread_join(other[1], 0);
    done();
    return 0;
}
