// Threads that wait for each other, map memory and come and go: FILE ROUNDS.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static volatile unsigned long hash = 7;
static int pipes[2];
static char *shared;

static void *work(void *number)
{
    long me = (long)number;
    for (int i = 0; i < 40; i++) {
        hash = hash * 31 + me;
        if (i % 8 == 0) {
            char *memory = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(memory, (int)hash, 5000);
            pthread_mutex_lock(&lock);
            char *before = shared;
            shared = memory;
            hash += (unsigned long)memory[hash % 5000];
            pthread_cond_broadcast(&changed);
            pthread_mutex_unlock(&lock);
            if (before)
                munmap(before, 65536);
        }
        if (i % 5 == me % 5 && me % 2)
            write(pipes[1], &me, 8);
        else if (i % 5 == me % 5)
            read(pipes[0], &me, 8);
        if (i % 11 == 0) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec = (until.tv_nsec + 200000) % 1000000000;
            pthread_mutex_lock(&lock);
            pthread_cond_timedwait(&changed, &lock, &until);
            pthread_mutex_unlock(&lock);
        }
    }
    return number;
}

int main(int count, char **args)
{
    int rounds = atoi(args[2]) / 20 + 1;
    if (pipe(pipes))
        return 1;
    for (int i = 0; i < rounds; i++) {
        pthread_t threads[6];
        for (long n = 0; n < 6; n++)
            pthread_create(&threads[n], 0, work, (void *)n);
        for (long n = 0; n < 6; n++) {
            if (n % 2 == 0)
                write(pipes[1], &n, 8), write(pipes[1], &n, 8);
            pthread_join(threads[n], 0);
        }
    }
    return hash & 1;
}
