// Killed by somebody else, while its threads compute, make calls and wait.
#include <pthread.h>
#include <unistd.h>
#include <signal.h>
#include <string.h>
static char b[1 << 20];

static void *f(void *a) {
    for (;;)
        memset(b, (long)a, sizeof b);
}

static void *g(void *a) {
    for (;;)
        getppid();
}

static void *k(void *a) {
    pause();
    return a;
}

int main() {
    pthread_t t;
    pthread_create(&t, 0, f, (void *)1);
    pthread_create(&t, 0, g, 0);
    pthread_create(&t, 0, k, 0);
    if (!fork()) {
        usleep(80000);
        kill(getppid(), SIGKILL);
        _exit(0);
    }
    for (volatile long i = 0;; i++)
        ;
}
