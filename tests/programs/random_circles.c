/* Runs the code of BODIES, a file that the test makes up: functions of direct and other branches
   that never return, each left after some signals; every other one while a SIGTRAP is blocked and
   waits. Another thread runs one of them, too. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096
#define STACK_BYTES (4 * PAGE)

/* For the bodies: the top of a stack that may overflow, and a page that faults now and then. */
static __thread char *body_stack, *body_page;
#include BODIES

static __thread sigjmp_buf out;
static __thread unsigned long state;
static __thread volatile int alarms;

static unsigned random_below(unsigned limit)
{
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (unsigned)(state >> 33) % limit;
}

static void alarm_soon(void)
{
    struct itimerval timer = { { 0, 0 }, { 0, 100 + random_below(3000) } };
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void on_alarm(int sig)
{
    if (++alarms == 8)
        siglongjmp(out, sig);
    mprotect(body_page, PAGE, PROT_NONE);
    alarm_soon();
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    char *at = info->si_addr;
    if (sig == SIGILL) {
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
        return;
    }
    if (at < body_page || at >= body_page + PAGE)
        siglongjmp(out, sig);
    mprotect(body_page, PAGE, PROT_READ | PROT_WRITE);
}

static char *pages(int protection, unsigned long size)
{
    return mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void prepare(unsigned long seed)
{
    state = seed;
    body_page = pages(PROT_NONE, PAGE);
    char *stack = pages(PROT_NONE, STACK_BYTES + PAGE) + PAGE;
    mprotect(stack, STACK_BYTES, PROT_READ | PROT_WRITE);
    body_stack = stack + STACK_BYTES;
    stack_t alternative = { .ss_sp = pages(PROT_READ | PROT_WRITE, 65536), .ss_size = 65536 };
    sigaltstack(&alternative, NULL);
}

static void *other(void *number)
{
    prepare(7);
    if (!sigsetjmp(out, 1))
        bodies[(long)number]();
    return NULL;
}

int main(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaddset(&action.sa_mask, SIGALRM);
    action.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    action.sa_handler = on_alarm;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGALRM, &action, NULL);
    sigset_t trap;
    sigemptyset(&trap);
    sigaddset(&trap, SIGTRAP);
    volatile int waiting = 0;
    prepare(5);
    unsigned long count = sizeof bodies / sizeof *bodies;
    /* No alarm for the other thread, from its first instruction on. */
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, other, (void *)(count - 1));
    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    for (volatile unsigned long i = 0; i < count; i++) {
        alarms = 0;
        if (i & 1) {
            pthread_sigmask(SIG_BLOCK, &trap, NULL);
            raise(SIGTRAP);
        }
        if (!sigsetjmp(out, 1)) {
            alarm_soon();
            bodies[i]();
        }
        struct timespec now = { 0, 0 };
        if (i & 1)
            waiting += sigtimedwait(&trap, NULL, &now) == SIGTRAP;
        pthread_sigmask(SIG_UNBLOCK, &trap, NULL);
    }
    printf("done, %d\n", waiting);
    return 0;
}
