/* On how many CPUs a program may run, as its parts see it: before and after it has threads, in a
   thread, in a child, and in a program that the child executes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *who)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set))
        perror("sched_getaffinity");
    printf("%s: %d\n", who, CPU_COUNT(&set));
    fflush(stdout);
}

static void *thread(void *unused)
{
    tell("thread");
    return unused;
}

static void child(void)
{
    pid_t pid = fork();
    if (!pid) {
        tell("child");
        execlp("nproc", "nproc", (char *)0);
        _exit(1);
    }
    waitpid(pid, 0, 0);
}

static void threads(void)
{
    pthread_t id;
    if (!pthread_create(&id, 0, thread, 0))
        pthread_join(id, 0);
}

int main(int count, char **arguments)
{
    (void)arguments;
    if (count == 2)
        threads();
    if (count == 3)
        tell("first");
    child();
    tell("main");
    threads();
    return 0;
}
