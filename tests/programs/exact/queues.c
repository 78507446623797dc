// Signals for the process, whose threads wait in poll and wait.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include <poll.h>
#include <errno.h>
#include <sys/wait.h>
static int p[2];
static volatile int n;

static void h(int s) {
    n++;
    char c = s;
    write(p[1], &c, 1);
}

static void *f(void *a) {
    char c;
    int got = 0;
    while (got < 5) {
        struct pollfd x = {p[0], POLLIN};
        int r = poll(&x, 1, -1);
        if (r > 0 && read(p[0], &c, 1) == 1)
            got++;
    }
    return a;
}

int main() {
    pipe2(p, 0);
    signal(SIGUSR1, h);
    signal(SIGCHLD, h);
    pthread_t t;
    pthread_create(&t, 0, f, 0);
    for (int i = 0; i < 3; i++) {
        kill(getpid(), SIGUSR1);
        usleep(500);
    }
    for (int i = 0; i < 2; i++) {
        if (!fork())
            _exit(0);
        while (waitpid(-1, 0, 0) < 0 && errno == EINTR)
            ;
    }
    while (n < 5)
        usleep(100);
    pthread_join(t, 0);
    puts("ok");
    return 0;
}
