// Makes its stack executable, as programs with nested functions have it, and executes code there, deeper
// than the stack was then.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

static int deep(int depth)
{
    // mov $DEPTH, %eax; ret
    volatile unsigned char code[4096] = {0xb8, (unsigned char)depth, 0, 0, 0, 0xc3};
    int more = depth < 200 ? deep(depth + 1) : 0;
    return more + ((int (*)(void))(uintptr_t)code)();
}

int main(void)
{
    char here;
    void *page = (void *)((uintptr_t)&here & -4096UL);
    if (mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC | PROT_GROWSDOWN)) {
        perror("mprotect");
        return 1;
    }
    for (int round = 0; round < 3; round++) {
        printf("%d\n", deep(0));
        nanosleep(&(struct timespec){0, 20000000}, 0);
    }
    return 0;
}
