// System calls whose return is not simply behind them: fork, vfork, execve; and one that is none.

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc == 1)
        return 4;
    syscall(999);
    if (fork() == 0)
        _exit(0);
    wait(NULL);
    if (vfork() == 0)
        _exit(0);
    wait(NULL);
    argv[1] = NULL;
    execv("/proc/self/exe", argv);
    return 5;
}
