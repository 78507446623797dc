// Calls of the vsyscall page.
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

int main() {
    struct timeval tv = {0};
    long (*g)(struct timeval *, void *) = (void *)0xffffffffff600000;
    long (*t)(long *) = (void *)0xffffffffff600400;
    long r = g(&tv, 0);
    long now;
    t(&now);
    printf("%ld %d %d\n", r, tv.tv_sec > 1000, now > 1000);
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return 0;
}
