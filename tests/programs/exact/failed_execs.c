// Threads end while another one is in an execve(2) that takes long and fails: its file is no
// program, and its arguments are many.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARGUMENTS = 200000, ROUNDS = 5 };

static char *arguments[ARGUMENTS + 1];
static volatile int rounds;

static void *executes(void *file) {
    char *none[] = {0};
    for (; rounds < ROUNDS; rounds++)
        if (syscall(SYS_execveat, (int)(long)file, "", arguments, none, AT_EMPTY_PATH) != -1)
            abort();
    return 0;
}

static void *ends(void *argument) {
    return argument;
}

int main() {
    int file = memfd_create("no program", 0);
    if (write(file, "no program", 10) != 10)
        return 1;
    for (int i = 0; i < ARGUMENTS; i++)
        arguments[i] = "";
    pthread_t executor, ending;
    pthread_create(&executor, 0, executes, (void *)(long)file);
    long sum = 0;
    while (rounds < ROUNDS) {
        void *result;
        pthread_create(&ending, 0, ends, (void *)1L);
        pthread_join(ending, &result);
        sum += (long)result;
    }
    pthread_join(executor, 0);
    printf("%s\n", sum > 0 ? "joined" : "none");
}
