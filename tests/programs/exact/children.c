// Children of all kinds: fork, vfork, posix_spawn, system, popen.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <spawn.h>
#include <sys/wait.h>
#include <signal.h>
extern char **environ;
static volatile int n;

static void h(int s) {
    n++;
}

int main() {
    setvbuf(stdout, 0, _IONBF, 0);
    signal(SIGCHLD, h);
    int st;
    for (int i = 0; i < 5; i++) {
        pid_t p = fork();
        if (!p)
            _exit(i);
        waitpid(p, &st, 0);
        printf("%d ", WEXITSTATUS(st));
    }
    pid_t v = vfork();
    if (!v) {
        execl("/bin/echo", "echo", "vforked", (char *)0);
        _exit(1);
    }
    waitpid(v, &st, 0);
    printf("%d\n", WEXITSTATUS(st));
    v = vfork();
    if (!v)
        _exit(9);
    waitpid(v, &st, 0);
    printf("%d\n", WEXITSTATUS(st));
    char *a[] = {"echo", "spawned", 0};
    pid_t s;
    posix_spawnp(&s, "echo", 0, 0, a, environ);
    waitpid(s, &st, 0);
    posix_spawnp(&s, "nonexistent-program", 0, 0, a, environ);
    printf("%d\n", system("exit 3") >> 8);
    FILE *f = popen("echo popen", "r");
    char b[64];
    fgets(b, 64, f);
    printf("%s", b);
    pclose(f);
    printf("%d\n", n >= 8);
    int p[2];
    pipe(p);
    if (!fork()) {
        close(p[0]);
        for (int i = 0; i < 1000; i++)
            write(p[1], "0123456789", 10);
        _exit(0);
    }
    close(p[1]);
    long t = 0;
    int r;
    char big[333];
    while ((r = read(p[0], big, 333)) > 0 || (r < 0))
        if (r > 0)
            t += r;
    printf("%ld\n", t);
    while (wait(&st) > 0)
        ;
    return 0;
}
