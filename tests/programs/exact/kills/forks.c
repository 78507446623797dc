// A family: children that compute, that start others, that execute another program: FILE ROUNDS.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int work(int seed)
{
    volatile unsigned sum = (unsigned)seed;
    for (int i = 0; i < 20000; i++) {
        sum = sum * 31 + (unsigned)(i * seed);
        if (i % 500 == 0)
            sum += (unsigned)getppid();
    }
    return sum & 0x3f;
}

int main(int count, char **args)
{
    int rounds = atoi(args[2]) / 40 + 1, sum = 0, status;
    for (int i = 0; i < rounds; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (i % 3 == 0)
                execl("/bin/true", "true", args[1], (char *)0);
            if (i % 3 == 1 && fork() == 0)
                _exit(work(i));
            int result = work(i);
            if (i % 3 == 1)
                wait(&status);
            _exit(result);
        }
        sum += work(i);
        if (i % 4)
            while (waitpid(-1, &status, 0) > 0)
                sum += WEXITSTATUS(status);
    }
    while (wait(&status) > 0)
        sum += WEXITSTATUS(status);
    return sum & 1;
}
