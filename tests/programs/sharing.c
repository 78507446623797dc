// Children that share their parent's memory, for which it does not wait: by clone(2) and by clone3(2).
#define _GNU_SOURCE
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char stack[1 << 16] __attribute__((aligned(16)));
static volatile int shared;

static int child(void *step) {
    for (int i = 0; i < 100000; i++)
        shared += (int)(long)step;
    _exit(3);
}

static pid_t by_clone3(void) {
    struct clone_args args = {.flags = CLONE_VM,
                              .exit_signal = SIGCHLD,
                              .stack = (unsigned long)stack,
                              .stack_size = sizeof stack};
    long result;
    __asm__ volatile("syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 1f\n"
                     "xor %%ebp, %%ebp\n"
                     "mov $2, %%edi\n"
                     "call *%[child]\n"
                     "1:\n"
                     : "=a"(result)
                     : "a"(SYS_clone3), "D"(&args), "S"(sizeof args), [child] "r"(child)
                     : "rcx", "r11", "memory");
    return (pid_t)result;
}

int main(void) {
    for (int round = 0; round < 4; round++) {
        int status = 0, sum = 0;
        pid_t pid = round % 2 ? by_clone3()
                              : clone(child, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)1);
        for (int i = 0; i < 100000; i++)
            sum += i & round;
        waitpid(pid, &status, 0);
        printf("%d %d %d\n", shared, sum, WEXITSTATUS(status));
        fflush(stdout);
    }
    return 0;
}
