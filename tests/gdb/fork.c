// Children that are not followed.
#include <sys/wait.h>
#include <unistd.h>

static volatile int n;

__attribute__((noinline)) static void after(int status) {
    n = status;
}

int main(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    waitpid(child, &status, 0);
    after(status);
    child = vfork();
    if (child == 0)
        _exit(4);
    waitpid(child, &status, 0);
    after(status);
    return 0;
}
