// Calls a function right after it made a thread, which may not have begun by then.
#include <pthread.h>

static volatile int sum;

static void *run(void *of) {
    sum++;
    return of;
}

__attribute__((noinline)) void late(void) {
    sum++;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    late();
    pthread_join(thread, NULL);
    return 9;
}
