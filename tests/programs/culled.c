/* Children are killed at any moment: as they begin, make children, execute a program, or end. */
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void make_children(void)
{
    for (;;) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1, killed = 0;
    unsigned seed = argc > 2 ? atoi(argv[2]) : 1;
    char *again[] = { argv[0], "again", "1", "child", NULL };
    if (argc > 3)
        return 0;
    for (int i = 0; i < rounds; i++) {
        pid_t child;
        if (i % 3 == 2) {
            posix_spawn(&child, "/proc/self/exe", NULL, NULL, again, environ);
        } else if ((child = fork()) == 0) {
            if (i % 3 == 1)
                execv("/proc/self/exe", again);
            make_children();
        }
        usleep(rand_r(&seed) % 40000);
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        killed += WIFSIGNALED(status) || WIFEXITED(status);
    }
    printf("%d\n", killed);
    return 7;
}
