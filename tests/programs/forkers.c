/* Threads that start processes at the same time, while others compute. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 8 };

static volatile int done;

static void *compute(void *unused)
{
    volatile long n = 0;
    while (!done)
        n++;
    return unused;
}

static void *start(void *unused)
{
    (void)unused;
    long wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(i);
        int status = 0;
        wrong += waitpid(child, &status, 0) != child || WEXITSTATUS(status) != i;
        wrong += WEXITSTATUS(system("exit 5")) != 5;
    }
    return (void *)wrong;
}

int main(void)
{
    pthread_t starters[2], computer;
    long wrong = 0;
    pthread_create(&computer, NULL, compute, NULL);
    for (int i = 0; i < 2; i++)
        pthread_create(&starters[i], NULL, start, NULL);
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(starters[i], &result);
        wrong += (long)result;
    }
    done = 1;
    pthread_join(computer, NULL);
    printf("%ld wrong\n", wrong);
    return 0;
}
