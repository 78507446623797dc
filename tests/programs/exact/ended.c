// A long run with memory of all kinds, threads that wait and compute, and an end of the kind that the argument
// says.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES (16 << 12)
static char initialised[PAGES] = { 1 };
static char *of_kind[6];
static volatile long sum;

static char *filled(int flags, int protection, char value) {
    char *pages = mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
    memset(pages, value, PAGES / 2);
    mprotect(pages, PAGES, protection);
    return pages;
}

static void *waits(void *pipe) {
    char byte;
    read(*(int *)pipe, &byte, 1);
    return NULL;
}

static void *computes(void *unused) {
    for (;;)
        sum += initialised[sum % PAGES];
    return unused;
}

static long overflows(long depth) {
    volatile char frame[1000];
    frame[0] = depth;
    return overflows(depth + 1) + frame[0];
}

static void end(const char *kind) {
    if (!strcmp(kind, "abort"))
        abort();
    if (!strcmp(kind, "fault"))
        *(volatile char *)of_kind[1] = 1;
    if (!strcmp(kind, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(kind, "overflow"))
        overflows(0);
    exit(3);
}

static void *ends(void *kind) {
    usleep(20000);
    end(kind);
    return NULL;
}

int main(int count, char **arguments) {
    int ends_of_pipe[2];
    pthread_t thread;
    if (count != 2 || pipe(ends_of_pipe) != 0)
        return 1;
    of_kind[0] = filled(MAP_PRIVATE, PROT_READ, 2);
    of_kind[1] = filled(MAP_PRIVATE, PROT_NONE, 3);
    of_kind[2] = filled(MAP_PRIVATE, PROT_READ | PROT_EXEC, 4);
    of_kind[3] = filled(MAP_SHARED, PROT_READ | PROT_WRITE, 5);
    of_kind[4] = filled(MAP_PRIVATE, PROT_READ | PROT_WRITE, 6);
    madvise(of_kind[4], PAGES, MADV_DONTDUMP);
    of_kind[5] = calloc(1 << 20, 64);
    of_kind[5][1 << 25] = 7;
    initialised[PAGES - 1] = 8;
    for (int i = 0; i < 70000000; i++)
        sum += initialised[i % PAGES];
    pthread_create(&thread, NULL, waits, ends_of_pipe);
    if (!strcmp(arguments[1], "thread")) {
        // The first thread leaves before the others.
        pthread_create(&thread, NULL, ends, arguments[1]);
        pthread_exit(NULL);
    }
    pthread_create(&thread, NULL, computes, NULL);
    usleep(20000);
    end(arguments[1]);
}
