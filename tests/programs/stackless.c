/* Makes a child whose stack pointer leads nowhere, and which needs no stack. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLONE 56
#define EXIT 60

int main(void)
{
    for (long stack = 0x1000;; stack = -1) {
        long child;
        /* clone(SIGCHLD, stack, 0, 0, 0), and in the child exit(stack & 0x7f). */
        __asm__ volatile("xor %%r10d, %%r10d\n xor %%r8d, %%r8d\n syscall\n"
                         "test %%rax, %%rax\n jnz 1f\n"
                         "mov %%rsi, %%rdi\n and $0x7f, %%edi\n mov %2, %%eax\n syscall\n 1:"
                         : "=a"(child)
                         : "a"(CLONE), "i"(EXIT), "D"(SIGCHLD), "S"(stack), "d"(0)
                         : "rcx", "r8", "r10", "r11", "memory");
        int status = -1;
        waitpid((pid_t)child, &status, 0);
        printf("%x ", status);
        if (stack == -1)
            break;
    }
    puts("done");
    return 0;
}
