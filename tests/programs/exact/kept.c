// Keeps all that it reads.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char kept[16384];
static struct timespec times[8];
static struct stat states[4];
static volatile long sum;

static void *count(void *unused) {
    for (int i = 0; i < 400000; i++)
        sum += i & 3;
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, count, 0);
    int fd = open("/proc/self/exe", O_RDONLY), size = 0, more;
    while (size < 12000 && (more = read(fd, kept + size, 500)) > 0)
        size += more;
    for (int i = 0; i < 8; i++)
        clock_gettime(CLOCK_MONOTONIC, &times[i]);
    for (int i = 0; i < 4; i++)
        fstat(i < 3 ? i : fd, &states[i]);
    for (int i = 0; i < 400000; i++)
        sum += times[i & 7].tv_nsec & 1;
    pthread_join(thread, 0);
    return (kept[100] + getpid()) & 63;
}
