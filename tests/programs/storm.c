/* Signals as fast as another process can send them, at every instruction of a loop of all kinds of
   branches. The handler looks whether the interrupted registers are what the loop has there.
   Arguments: what else is done to the poor program, and how many signals it takes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

struct point {
    uint64_t ip;
    int32_t raised, pushed, flags, unused;
};

extern struct point storm_points[];
extern char storm_loop_start[], storm_loop_end[], __executable_start[], etext[];
extern uint64_t storm_stack;
void storm_loop(volatile int *go_on);

static volatile int go_on = 1, wanted, faults, handled, in_loop, bad, depth, deepest, longjmps;
static volatile int jumps_out, out_is_set, must_fault;
static sigjmp_buf out;
/* What the process that queues signals may know: how many were taken, from the loop's start on. */
static volatile int *taken;
static char *forbidden;

/* In the order in which the loop raises them. */
static const int counters[] = {
    REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_R8,
    REG_R9, REG_R10, REG_R12, REG_R13, REG_R14, REG_R15,
};
enum { COUNTERS = sizeof counters / sizeof *counters };

static void complain(const char *what, const greg_t *r)
{
    char line[200];
    int len = snprintf(line, sizeof line, "%s: rip %llx rsp %llx flags %llx rax %lld r15 %lld\n",
                       what, r[REG_RIP], r[REG_RSP], r[REG_EFL], r[REG_RAX], r[REG_R15]);
    if (bad++ < 5)
        write(1, line, (size_t)len);
}

static void look(const greg_t *r)
{
    uint64_t ip = (uint64_t)r[REG_RIP];
    if (ip < (uint64_t)storm_loop_start || ip >= (uint64_t)storm_loop_end) {
        if (ip < (uint64_t)__executable_start || ip >= (uint64_t)etext)
            complain("not in the program", r);
        return;
    }
    in_loop++;
    const struct point *at = storm_points;
    while (at->ip && at->ip != ip)
        at++;
    if (!at->ip) {
        complain("not at an instruction", r);
        return;
    }
    if ((uint64_t)r[REG_RSP] + (uint64_t)at->pushed != storm_stack
        || (uint64_t)r[REG_RBP] != storm_stack)
        complain("stack", r);
    if (at->flags < 0)
        return;
    if ((r[REG_EFL] & 0x41) != at->flags || (r[REG_EFL] & 0x500))
        complain("flags", r);
    for (int i = 0; i < COUNTERS; i++)
        if (r[counters[i]] != r[REG_R15] + (i < at->raised))
            complain("counter", r);
}

/* What a child that sends is told of the handlers: how often one was entered, how deep they are. */
static volatile int *pace;
enum { ENTERED, DEEP };

/* All may come before the loop begins, or the other thread does; those that are queued are
   counted. */
static int is_enough(void)
{
    return handled >= wanted && (taken || in_loop > 0) && (!jumps_out || longjmps > 0)
        && (!must_fault || faults > 0);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    depth++;
    if (pace)
        pace[ENTERED]++, pace[DEEP] = depth;
    if (depth > deepest)
        deepest = depth;
    look(((ucontext_t *)context)->uc_mcontext.gregs);
    __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED); /* another thread may handle one, too */
    if (is_enough())
        go_on = 0;
    depth--;
    if (pace)
        pace[DEEP] = depth;
    if (jumps_out && out_is_set && depth == 0 && handled % 8 == 0 && go_on) {
        longjmps++;
        siglongjmp(out, 1);
    }
}

/* Signals of this kind are queued: each comes, and in order. */
static void on_queued(int number, siginfo_t *info, void *context)
{
    if (info->si_value.sival_int != handled)
        complain("out of order", ((ucontext_t *)context)->uc_mcontext.gregs);
    on_signal(number, info, context);
    *taken = handled;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (number != SIGSEGV || (char *)info->si_addr != forbidden + faults % 4096)
        complain("fault", r);
    faults++;
    r[REG_RIP] += 2; /* movb %al, (%rdx) */
}

/* So that what is recorded is bounded, however slow the machine is. */
static void wait_for_signal(void)
{
    for (int seen = handled; go_on && handled == seen;)
        usleep(100);
}

static void *fault_forever(void *unused)
{
    (void)unused;
    while (go_on) {
        for (int i = 0; i < 20; i++)
            __asm__ volatile("movb %%al, (%%rdx)"
                             : : "a"(1), "d"(forbidden + faults % 4096) : "memory");
        wait_for_signal();
    }
    return NULL;
}

static void *compute_deaf(void *sum)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    uint64_t x = 1;
    while (go_on) {
        for (int i = 0; i < 50000; i++)
            x = x * 6364136223846793005u + (x & 1 ? 3 : 5);
        wait_for_signal();
    }
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int i = 1; i < 32; i++)
        if (i != SIGKILL && i != SIGSTOP && !sigismember(&now, i))
            bad++;
    *(uint64_t *)sum = x;
    return NULL;
}

static pid_t sender(int number)
{
    pid_t target = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == target) {
            /* Handlers that interrupt each other without end would use up the stack. */
            while (pace && pace[DEEP] >= 16 && getppid() == target)
                sched_yield();
            int seen = pace ? pace[ENTERED] : 0;
            if (kill(target, number) != 0)
                break;
            sched_yield();
            for (int i = 0; pace && pace[ENTERED] == seen && i < 1000; i++)
                sched_yield();
        }
        _exit(0);
    }
    return child;
}

static pid_t queuer(void)
{
    pid_t target = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 0; i < wanted; i++)
            while (*taken + 4 < i || sigqueue(target, SIGRTMIN, (union sigval){ .sival_int = i }) != 0)
                sched_yield();
        _exit(0);
    }
    return child;
}

/* Stops the program and lets it go on, a few times. */
static pid_t stopper(void)
{
    pid_t target = getpid(), child = fork();
    if (child == 0) {
        for (int i = 0; i < 20; i++) {
            kill(target, SIGSTOP);
            usleep(2000);
            kill(target, SIGCONT);
            usleep(5000);
        }
        _exit(0);
    }
    return child;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "plain";
    wanted = argc > 2 ? atoi(argv[2]) : 1000;
    struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
    uint64_t sum = 0;
    pthread_t thread;
    pid_t children[2] = { 0, 0 };
    if (!strcmp(mode, "nodefer")) {
        action.sa_flags |= SA_NODEFER;
        pace = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
    if (!strcmp(mode, "masked"))
        sigfillset(&action.sa_mask);
    if (!strcmp(mode, "altstack")) {
        stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
        sigaltstack(&stack, NULL);
        action.sa_flags |= SA_ONSTACK;
    }
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    jumps_out = !strcmp(mode, "longjmp");
    if (!strcmp(mode, "deaf"))
        pthread_create(&thread, NULL, compute_deaf, &sum);
    must_fault = !strcmp(mode, "faults");
    if (must_fault) {
        struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
        sigfillset(&fault.sa_mask);
        sigdelset(&fault.sa_mask, SIGUSR1);
        sigaction(SIGSEGV, &fault, NULL);
        forbidden = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_create(&thread, NULL, fault_forever, NULL);
    }
    if (!strcmp(mode, "timer")) {
        struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
        struct itimerspec often = { { 0, 2000000 }, { 0, 2000000 } };
        timer_t timer;
        timer_create(CLOCK_MONOTONIC, &event, &timer);
        timer_settime(timer, 0, &often, NULL);
    } else if (!strcmp(mode, "queued") || !strcmp(mode, "stopped")) {
        struct sigaction queued = { .sa_sigaction = on_queued, .sa_flags = SA_SIGINFO };
        sigaction(SIGRTMIN, &queued, NULL);
        taken = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        children[0] = queuer();
        if (!strcmp(mode, "stopped"))
            children[1] = stopper();
    } else {
        children[0] = sender(SIGUSR1);
        if (!strcmp(mode, "nested") || !strcmp(mode, "nodefer"))
            children[1] = sender(SIGUSR2);
    }
    if (sigsetjmp(out, 1))
        depth = 0;
    out_is_set = 1;
    if (go_on)
        storm_loop(&go_on);
    for (int i = 0; i < 2; i++)
        if (children[i] > 0) {
            if (strcmp(mode, "stopped"))
                kill(children[i], SIGKILL);
            waitpid(children[i], NULL, 0);
        }
    if (!strcmp(mode, "deaf") || must_fault)
        pthread_join(thread, NULL);
    printf("%s: bad %d, enough %d\n", mode, bad, is_enough());
    fprintf(stderr, "%d handled, %d in the loop, %d faults, %d deep\n", handled, in_loop, faults,
            deepest);
    return bad != 0;
}
