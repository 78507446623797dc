/* The first thread of each child ends at about the time at which another thread ends the child. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT 60

static void *ends_all(void *argument)
{
    exit(*(int *)argument);
}

static void run(int delay)
{
    pthread_t thread;
    int status = 66;
    pthread_create(&thread, NULL, ends_all, &status);
    for (volatile int wait = 0; wait < delay; wait++)
        ;
    /* The thread alone, at once. */
    syscall(EXIT, 0);
}

static int wait_for(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* As the first process of a PID namespace of its own. */
static void run_apart(int delay)
{
    if (unshare(CLONE_NEWPID))
        _exit(2);
    pid_t child = fork();
    if (!child)
        run(delay);
    _exit(wait_for(child));
}

int main(int argc, char **argv)
{
    (void)argv;
    for (int i = 0; i < 12; i++) {
        pid_t child = fork();
        if (!child)
            (argc > 1 ? run_apart : run)(i * 400);
        printf("%d ", wait_for(child));
        fflush(stdout);
    }
    puts("done");
    return 0;
}
