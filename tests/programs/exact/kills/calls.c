// One thread, whose state depends on the results of many calls of all kinds: FILE ROUNDS.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static unsigned long hash = 14695981039346656037ul;
static volatile int alarms;

static void mix(const void *bytes, long size)
{
    for (long i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211ul;
}

static void handler(int signal)
{
    alarms += signal;
}

int main(int count, char **args)
{
    int rounds = atoi(args[2]), pipes[2];
    char *mapped = 0, *grown = 0;
    signal(SIGUSR1, handler);
    if (pipe(pipes))
        return 1;
    for (int i = 0; i < rounds; i++) {
        char bytes[5000];
        struct timespec time;
        struct stat status;
        clock_gettime(CLOCK_MONOTONIC, &time);
        mix(&time, sizeof time);
        mix(bytes, getrandom(bytes, 16 + i % 100, 0));
        int file = open(args[0], O_RDONLY);
        fstat(file, &status);
        mix(&status, sizeof status);
        mix(bytes, pread(file, bytes, sizeof bytes, hash % 9000));
        if (i % 3 == 0) {
            char *view = mmap(mapped, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
            view[hash % 8000] += 3;
            mix(view + hash % 4096, 64);
            if (mapped && mapped != view)
                munmap(mapped, 8192);
            mapped = view;
        }
        close(file);
        struct iovec parts[] = {{&hash, 8}, {bytes, 100}};
        mix(bytes, writev(pipes[1], parts, 2));
        mix(bytes, read(pipes[0], bytes, 108));
        if (i % 7 == 0)
            kill(getpid(), SIGUSR1);
        grown = realloc(grown, 1000 + hash % 300000);
        memset(grown, (int)hash, 1000);
        mix(grown, 100);
    }
    return alarms % 7 != (int)(hash & 7);
}
