/* Forks, a vfork and an exec by a child; then the process itself becomes another program. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int child_work(int seed)
{
    int sum = 0;
    for (int i = 0; i < 100; i++)
        sum += i * seed;
    return sum % 7;
}

int main(int argc, char **argv)
{
    int status = 0, sum = 0;
    for (int i = 1; i <= 2; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(child_work(i));
        waitpid(pid, &status, 0);
        sum += WEXITSTATUS(status);
    }
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    printf("sum %d, true %d\n", sum, WEXITSTATUS(status));
    fflush(stdout);
    if (argc > 1)
        execl("/bin/echo", "echo", argv[1], (char *)NULL);
    return 3;
}
