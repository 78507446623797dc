/* Children of one kind each, by the first argument. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int got;

static void handler(int signal)
{
    got += signal;
}

static int work(int seed)
{
    volatile int sum = 0;
    for (int i = 0; i < 2000; i++)
        sum = sum * 31 + i * seed;
    return sum & 0x3f;
}

/* All of them at once. */
static int many(int count)
{
    int sum = 0, status;
    for (int i = 0; i < count; i++)
        if (fork() == 0)
            _exit(work(i));
    for (int i = 0; i < count; i++) {
        wait(&status);
        sum += WEXITSTATUS(status);
    }
    printf("%d\n", sum);
    return 0;
}

/* Waits until a process has computed for 10 ms more: it is in no call. */
static void wait_for_work(pid_t process)
{
    clockid_t clock;
    struct timespec begun, now;
    if (clock_getcpuclockid(process, &clock) || clock_gettime(clock, &begun))
        return;
    do {
        usleep(1000);
        clock_gettime(clock, &now);
    } while ((now.tv_sec - begun.tv_sec) * 1000000000L + now.tv_nsec - begun.tv_nsec < 10000000);
}

/* Ends by signals, from the parent and from themselves. */
static int killed(void)
{
    int status;
    for (int i = 0; i < 4; i++) {
        int ready[2];
        if (pipe(ready))
            return 1;
        pid_t child = fork();
        if (child == 0) {
            write(ready[1], "x", 1);
            if (i == 1)
                abort();
            if (i == 2)
                *(volatile int *)8 = 1;
            for (;;)
                if (i == 3)
                    pause();
        }
        char byte;
        read(ready[0], &byte, 1);
        /* A recording ends earlier where SIGKILL comes as a call returns. */
        usleep(20000);
        if (i == 0)
            wait_for_work(child);
        if (i == 0 || i == 3)
            kill(child, i ? SIGTERM : SIGKILL);
        waitpid(child, &status, 0);
        printf("%d %d\n", WIFSIGNALED(status), WTERMSIG(status));
    }
    return 0;
}

/* A grandchild whose parent has ended before it goes on. */
static int orphan(void)
{
    int ends[2], status;
    char text[16] = "";
    if (pipe(ends))
        return 1;
    pid_t child = fork();
    if (child == 0) {
        pid_t parent = getpid();
        if (fork() == 0) {
            while (getppid() == parent)
                usleep(1000);
            write(ends[1], "orphan", 6);
            _exit(work(3));
        }
        _exit(5);
    }
    waitpid(child, &status, 0);
    close(ends[1]);
    while (read(ends[0], text, sizeof text - 1) > 0)
        ;
    printf("%s %d\n", text, WEXITSTATUS(status));
    return 0;
}

static int make_daemon(void)
{
    int ends[2], status;
    char byte;
    if (pipe(ends))
        return 1;
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() != 0)
            _exit(0);
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        usleep(20000);
        _exit(work(9));
    }
    waitpid(child, &status, 0);
    close(ends[1]);
    printf("%d %d\n", WEXITSTATUS(status), (int)read(ends[0], &byte, 1));
    return 0;
}

static void *forker(void *argument)
{
    int status, *sum = argument;
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(work(i + 1));
        waitpid(child, &status, 0);
        *sum += WEXITSTATUS(status);
    }
    return NULL;
}

static int threads(void)
{
    pthread_t all[4];
    int sums[4] = {0};
    for (int i = 0; i < 4; i++)
        pthread_create(&all[i], NULL, forker, &sums[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
    printf("%d %d %d %d\n", sums[0], sums[1], sums[2], sums[3]);
    return 0;
}

static void *adder(void *argument)
{
    *(int *)argument = work(7);
    return NULL;
}

/* Signals that are blocked or pending at the fork, handlers, and threads of a child. */
static int masked(void)
{
    sigset_t set, old;
    int status;
    signal(SIGUSR1, handler);
    signal(SIGTRAP, handler);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            sigset_t now;
            sigprocmask(SIG_BLOCK, NULL, &now);
            int blocked = sigismember(&now, SIGUSR1) + 2 * sigismember(&now, SIGTERM);
            raise(SIGUSR1);
            int before = got;
            sigprocmask(SIG_SETMASK, &old, NULL);
            raise(SIGTRAP);
            int sum = 0;
            pthread_t thread;
            pthread_create(&thread, NULL, adder, &sum);
            pthread_join(thread, NULL);
            if (sum != work(7))
                _exit(2);
            _exit(blocked == 1 && before == 0 && got == SIGUSR1 + SIGTRAP ? 40 + i : 1);
        }
        waitpid(child, &status, 0);
        printf("%d\n", WEXITSTATUS(status));
    }
    return 0;
}

/* A child that its parent's end does not end. */
static int outlives(const char *path)
{
    if (fork() == 0) {
        int out = open(path, O_CREAT | O_WRONLY, 0600);
        for (int i = 0; i < 50; i++)
            usleep(10000);
        write(out, "done\n", 5);
        _exit(0);
    }
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IONBF, 0);
    if (!strcmp(what, "many"))
        return many(atoi(argv[2]));
    if (!strcmp(what, "killed"))
        return killed();
    if (!strcmp(what, "orphan"))
        return orphan();
    if (!strcmp(what, "daemon"))
        return make_daemon();
    if (!strcmp(what, "threads"))
        return threads();
    if (!strcmp(what, "masked"))
        return masked();
    if (!strcmp(what, "outlives"))
        return outlives(argv[2]);
    return 2;
}
