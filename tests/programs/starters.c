/* Starts programs in all the ways that the C library has. With an argument, it forks ("fork") or
   vforks ("vfork") a child that executes sleep, and says in a file when that has ended. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int wait_for(pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static int sleeper(const char *how, const char *file)
{
    pid_t child = strcmp(how, "vfork") ? fork() : vfork();
    if (child == 0) {
        execlp("sleep", "sleep", "0.5", (char *)NULL);
        _exit(127);
    }
    int status = wait_for(child);
    FILE *out = fopen(file, "w");
    fprintf(out, "%d\n", status);
    return fclose(out);
}

int main(int argc, char **argv)
{
    if (argc > 2)
        return sleeper(argv[1], argv[2]);
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("system %d\n", WEXITSTATUS(system("echo from a shell; exit 5")));
    char line[64] = "";
    FILE *pipe = popen("echo from a pipe", "r");
    if (!fgets(line, sizeof line, pipe))
        return 1;
    printf("popen %s", line);
    printf("pclose %d\n", pclose(pipe));
    pid_t child;
    char *arguments[] = {"echo", "spawned", NULL};
    if (posix_spawnp(&child, "echo", NULL, NULL, arguments, environ))
        return 1;
    printf("posix_spawn %d\n", wait_for(child));
    child = vfork();
    if (child == 0) {
        execlp("echo", "echo", "vforked", (char *)NULL);
        _exit(127);
    }
    printf("vfork %d\n", wait_for(child));
    child = fork();
    if (child == 0) {
        printf("forked\n");
        _exit(7);
    }
    printf("fork %d\n", wait_for(child));
    return 3;
}
