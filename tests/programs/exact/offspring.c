// A child by fork, which starts the program again by posix_spawn.
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
int total;

__attribute__((noinline)) void work(int n) {
    total += n * 7;
}

static int status_of(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc > 1) {
        work(atoi(argv[1]));
        printf("grandchild %d\n", total);
        return total;
    }
    work(1);
    pid_t child = fork();
    if (child) {
        printf("parent %d\n", status_of(child));
        return 0;
    }
    work(2);
    char *again[] = {argv[0], "3", NULL};
    posix_spawn(&child, argv[0], NULL, NULL, again, environ);
    work(status_of(child));
    printf("child %d\n", total);
    return total;
}
