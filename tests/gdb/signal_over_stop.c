// SIGCHLD, which nobody handles, comes while the program stands at a breakpoint.
#include <sys/wait.h>
#include <unistd.h>

static volatile int count;

__attribute__((noinline)) static void pass(int i) {
    count = i;
}

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        usleep(100000);
        _exit(0);
    }
    for (int i = 1; i <= 4; i++)
        pass(i);
    waitpid(child, 0, 0);
    return 0;
}
