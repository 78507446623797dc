// Threads that run, a child that is spawned, one that is forked and calls the function in question;
// then the program calls it itself.
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static volatile long sum;
static volatile int over;

static void *run(void *of) {
    while (!over)
        sum++;
    return of;
}

__attribute__((noinline)) int late(int n) {
    for (int i = 0; i < 1000; i++)
        sum += i * n;
    return sum & 0xff;
}

int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, run, NULL);
    pid_t child;
    char *arguments[] = {"true", NULL};
    int status;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0)
        waitpid(child, &status, 0);
    child = fork();
    if (child == 0) {
        late(1);
        _exit(5);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    fflush(stdout);
    usleep(10000);
    late(3);
    puts("late");
    over = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 9;
}
