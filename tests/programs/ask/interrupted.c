/* Signals at the first instruction of a function, at a target of a return, and in a system call
   that restarts; and a handler that skips the instruction that faults. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

static char *page;
static int pipe_fds[2];

int callee(char *p);
int returns_to_fault(char *p);
void skipped(void);
__asm__(".text\n"
        ".globl callee\n.type callee,@function\ncallee:\n"
        " movzbl (%rdi),%eax\n add $1,%eax\n ret\n.size callee,.-callee\n"
        ".globl empty\n.type empty,@function\nempty:\n ret\n.size empty,.-empty\n"
        ".globl returns_to_fault\n.type returns_to_fault,@function\nreturns_to_fault:\n"
        " call empty\n movzbl (%rdi),%eax\n call empty\n ret\n"
        ".size returns_to_fault,.-returns_to_fault\n"
        ".globl skipped\n.type skipped,@function\nskipped:\n ud2\n ret\n.size skipped,.-skipped\n");

static void after(void) {}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)info, (void)context;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void on_illegal(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

static void on_alarm(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)info, (void)context;
    if (write(pipe_fds[1], "x", 1) != 1)
        _exit(1);
}

static void install(int sig, void (*handler)(int, siginfo_t *, void *))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(sig, &action, NULL);
}

static int outer(char *p)
{
    return callee(p) + callee(p);
}

int main(void)
{
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    install(SIGSEGV, on_fault);
    install(SIGILL, on_illegal);
    install(SIGALRM, on_alarm);
    int sum = outer(page);
    mprotect(page, 4096, PROT_NONE);
    sum += returns_to_fault(page);
    skipped();
    skipped();
    after();

    struct itimerval timer = { { 0, 0 }, { 0, 500000 } };
    char byte = 0;
    if (pipe(pipe_fds))
        return 1;
    setitimer(ITIMER_REAL, &timer, NULL);
    ssize_t got = read(pipe_fds[0], &byte, 1);      /* interrupted, and restarted */
    after();
    printf("%d %zd\n", sum, got);
    return 0;
}
