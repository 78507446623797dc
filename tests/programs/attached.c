// Runs until its input ends: threads that compute, sleep, poll and wait, each checking what it
// gets. A system call that fails where it could not, or a wrong sum, is an error.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile int over, failed;
static volatile sig_atomic_t ticks;
static unsigned long rounds[4];

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    failed = 1;
}

static uint64_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    return x;
}

static uint64_t sum_of_mixes(void) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 20000; i++)
        sum += mix(i);
    return sum;
}

static void *compute(void *of) {
    uint64_t first = sum_of_mixes();
    while (!over) {
        if (sum_of_mixes() != first) {
            errno = 0;
            fail("wrong sum");
        }
        ++*(unsigned long *)of;
    }
    return NULL;
}

static void *sleeper(void *of) {
    while (!over) {
        struct timespec while_asleep = {0, 3000000};
        if (nanosleep(&while_asleep, NULL) != 0)
            fail("nanosleep");
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED || munmap(page, 4096) != 0)
            fail("mmap");
        ++*(unsigned long *)of;
    }
    return NULL;
}

static void *poller(void *of) {
    int ends[2];
    if (pipe(ends) != 0)
        fail("pipe");
    while (!over) {
        struct pollfd fd = {ends[0], POLLIN, 0};
        if (poll(&fd, 1, 2) != 0)
            fail("poll");
        ++*(unsigned long *)of;
    }
    return NULL;
}

static void *nothing(void *of) {
    return of;
}

static void *maker(void *of) {
    while (!over) {
        pthread_t thread;
        void *result;
        if (pthread_create(&thread, NULL, nothing, of) != 0 || pthread_join(thread, &result) != 0 ||
            result != of)
            fail("pthread_create");
        ++*(unsigned long *)of;
        usleep(500);
    }
    return NULL;
}

static void tick(int signal) {
    (void)signal;
    ticks++;
}

int main(void) {
    pthread_t threads[4];
    void *(*work[4])(void *) = {compute, sleeper, poller, maker};
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, work[i], &rounds[i]) != 0)
            fail("pthread_create");
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    puts("ready");
    fflush(stdout);
    char byte;
    long got;
    // Blocks for good; whatever stops it must restart it.
    while ((got = read(0, &byte, 1)) == 1) {
        printf("%c\n", byte);
        fflush(stdout);
    }
    if (got != 0)
        fail("read");
    over = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        if (rounds[i] == 0)
            fail("no rounds");
    printf("%s\n", failed ? "failed" : "well");
    return failed ? 1 : 7;
}
