// Handlers on their own stacks, that jump out, that mend what faulted, within each other; signals
// that are queued, waited for, read.
#define _GNU_SOURCE
#include <signal.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <errno.h>
#include <sys/wait.h>
static sigjmp_buf j;
static void *page;
static volatile int n;

static void segv(int s, siginfo_t *i, void *u) {
    n++;
    if (i->si_addr == (void *)16)
        siglongjmp(j, 1);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void usr(int s) {
    n++;
    if (s == SIGUSR1)
        raise(SIGUSR2);
}

static void rt(int s, siginfo_t *i, void *u) {
    n += i->si_value.sival_int;
}

static void fpe(int s, siginfo_t *i, void *u) {
    ucontext_t *c = u;
    c->uc_mcontext.gregs[REG_RIP] += 2;
    n += 100;
}

static void ill(int s, siginfo_t *i, void *u) {
    ucontext_t *c = u;
    c->uc_mcontext.gregs[REG_RIP] += 2;
    n += 1000;
}

static void trap(int s) {
    n += 10000;
}

static int rec(int d) {
    volatile char b[4096];
    b[0] = d;
    return rec(d + 1) + b[0];
}

int main() {
    stack_t ss = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&ss, 0);
    struct sigaction a = {.sa_sigaction = segv, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &a, 0);
    sigaction(SIGBUS, &a, 0);
    page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(volatile int *)page = 5;
    printf("%d %d\n", *(int *)page, n);
    for (int i = 0; i < 5; i++)
        if (!sigsetjmp(j, 1))
            *(volatile int *)16 = 1;
    printf("%d\n", n);
    struct sigaction b = {.sa_handler = usr};
    sigaction(SIGUSR1, &b, 0);
    sigaction(SIGUSR2, &b, 0);
    raise(SIGUSR1);
    printf("%d\n", n);
    struct sigaction r = {.sa_sigaction = rt, .sa_flags = SA_SIGINFO};
    sigaction(SIGRTMIN, &r, 0);
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &m, 0);
    for (int i = 1; i <= 4; i++)
        sigqueue(getpid(), SIGRTMIN, (union sigval){i});
    sigprocmask(SIG_UNBLOCK, &m, 0);
    printf("%d\n", n);
    struct sigaction f = {.sa_sigaction = fpe, .sa_flags = SA_SIGINFO};
    sigaction(SIGFPE, &f, 0);
    int z = 0;
    __asm__ volatile("xorl %%edx,%%edx; movl $1,%%eax; divl %0; " ::"r"(z) : "rax", "rdx");
    printf("%d\n", n);
    f.sa_sigaction = ill;
    sigaction(SIGILL, &f, 0);
    __asm__ volatile("ud2");
    printf("%d\n", n);
    signal(SIGTRAP, trap);
    __asm__ volatile("int3");
    printf("%d\n", n);
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    sigprocmask(SIG_BLOCK, &m, 0);
    int fd = signalfd(-1, &m, 0);
    kill(getpid(), SIGUSR1);
    struct signalfd_siginfo si;
    read(fd, &si, sizeof si);
    printf("%d\n", si.ssi_signo);
    kill(getpid(), SIGUSR1);
    siginfo_t info;
    printf("%d\n", sigwaitinfo(&m, &info));
    struct timespec t = {0, 1000000};
    printf("%d\n", sigtimedwait(&m, &info, &t));
    if (!fork()) {
        usleep(10000);
        kill(getppid(), SIGUSR1);
        _exit(7);
    }
    sigset_t e;
    sigemptyset(&e);
    sigsuspend(&e);
    int st;
    wait(&st);
    printf("%d %d\n", n, WEXITSTATUS(st));
    signal(SIGPIPE, SIG_IGN);
    int p[2];
    pipe(p);
    close(p[0]);
    printf("%zd %d\n", write(p[1], "x", 1), errno == EPIPE);
    fflush(stdout);
    a.sa_flags |= SA_RESETHAND;
    struct sigaction d = {.sa_sigaction = segv, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    return 0;
}
