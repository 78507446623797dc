// Threads that make short calls without end must leave time for one that sleeps.
#include <pthread.h>
#include <unistd.h>

static void *busy(void *unused) {
    for (;;)
        getppid();
    return unused;
}

int main(void) {
    pthread_t thread;
    for (int i = 0; i < 4; i++)
        pthread_create(&thread, 0, busy, 0);
    for (int i = 0; i < 5; i++)
        usleep(1000);
    _exit(7);
}
