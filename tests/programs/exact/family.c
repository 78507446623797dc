// Memory that a child writes. A recording ends before the fork.
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main() {
    volatile int *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    p[0] = 1;
    if (!fork()) {
        p[1] = p[0] + 41;
        _exit(0);
    }
    wait(0);
    printf("%d\n", p[1]);
    return p[1] == 42 ? 0 : 1;
}
