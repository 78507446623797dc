// A timer interrupts loops, string instructions, and calls that wait, with and without SA_RESTART.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <errno.h>
#include <sys/time.h>
#include <time.h>
#include <poll.h>
#include <stdlib.h>
static volatile int n;

static void h(int s) {
    n++;
}

static char buf[1 << 22];

static void tick(int us) {
    struct itimerval v = {{0, us}, {0, us}};
    setitimer(ITIMER_REAL, &v, 0);
}

int main() {
    struct sigaction a = {.sa_handler = h};
    sigaction(SIGALRM, &a, 0);
    volatile long x = 0;
    tick(700);
    while (n < 50)
        x++;
    n = 0;
    while (n < 50) {
        size_t c = sizeof buf;
        void *d = buf;
        __asm__ volatile("rep stosb" : "+D"(d), "+c"(c) : "a"(n) : "memory");
    }
    n = 0;
    while (n < 50) {
        __asm__ volatile("1: incq %0\n cmpl $0,%1\n jmp 2f\n2:" : "+m"(x) : "m"(n));
        for (int i = 0; i < 1000; i++)
            buf[i] ^= i;
    }
    int p[2];
    pipe(p);
    char c;
    int r = read(p[0], &c, 1);
    printf("%d %d\n", r, errno == EINTR);
    struct pollfd f = {p[0], POLLIN};
    r = poll(&f, 1, 1000);
    printf("%d %d\n", r, errno == EINTR);
    tick(0);
    alarm(0);
    struct timespec t = {0, 20000000}, rem = {0};
    tick(5000);
    r = nanosleep(&t, &rem);
    printf("%d %d\n", r, rem.tv_nsec > 0);
    tick(0);
    a.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &a, 0);
    n = 0;
    tick(3000);
    if (!fork()) {
        usleep(30000);
        write(p[1], "x", 1);
        _exit(0);
    }
    r = read(p[0], &c, 1);
    printf("%d %c %d\n", r, c, n > 0);
    r = poll(&f, 1, 20);
    printf("poll %d %d\n", r, r < 0 && errno == EINTR);
    tick(0);
    signal(SIGALRM, SIG_IGN);
    tick(2000);
    t.tv_nsec = 10000000;
    r = nanosleep(&t, &rem);
    printf("%d\n", r);
    tick(0);
    return 0;
}
