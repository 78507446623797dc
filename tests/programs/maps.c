// Finds its stack and its memory as garbage collectors and sanitizers do: by /proc/self/maps.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static uint64_t needle[2] = {0x1122334455667788, 0};

// The stack that the C library finds holds our own frames, and is as large as it may become.
static int stack_is_found(const char *who) {
    pthread_attr_t attr;
    void *start;
    size_t size;
    char local;
    if (pthread_getattr_np(pthread_self(), &attr) != 0 ||
        pthread_attr_getstack(&attr, &start, &size) != 0) {
        printf("%s: no stack\n", who);
        return 0;
    }
    pthread_attr_destroy(&attr);
    int inside = &local > (char *)start && &local < (char *)start + size;
    printf("%s: %s of its stack, %zu KiB\n", who, inside ? "inside" : "outside", size >> 12 << 2);
    return inside;
}

static void *work(void *unused) {
    stack_is_found("thread");
    return unused;
}

// Reads every word that can be written, as a collector looks for pointers.
static int scan(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;
    needle[1] = (uint64_t)malloc(64);
    uint64_t *hidden = (uint64_t *)needle[1];
    hidden[3] = needle[0] + 1;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char can[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, can) != 3 || strncmp(can, "rw", 2) != 0)
            continue;
        for (uint64_t *word = (uint64_t *)start; word < (uint64_t *)end; word++)
            found += *word == needle[0] + 1 && word == &hidden[3];
    }
    return found;
}

int main(void) {
    struct rlimit limit = {4 << 20, RLIM_INFINITY};
    pthread_t thread;
    int well = stack_is_found("main");
    well &= setrlimit(RLIMIT_STACK, &limit) == 0 && stack_is_found("limited");
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    printf("%d found\n", scan());
    // The stack grows to where it may.
    volatile char large[2 << 20];
    large[0] = large[sizeof large - 1] = 1;
    return well && large[0] ? 3 : 1;
}
