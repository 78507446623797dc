/* SIGTRAP in a program's own hands: blocked, pending, handled, ignored, waited for. With an
   argument: the ways to die of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int traps, code, value, inside, saved, alarms, nest;
static volatile pid_t sender;
static sigjmp_buf out;
static sigset_t trap;

static int blocked(void)
{
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    return sigismember(&now, SIGTRAP);
}

static int pending(void)
{
    sigset_t now;
    sigpending(&now);
    return sigismember(&now, SIGTRAP);
}

static void on_trap(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    traps++;
    code = info->si_code;
    sender = info->si_pid;
    value = info->si_value.sival_int;
    inside = blocked();
    saved = sigismember(&((ucontext_t *)context)->uc_sigmask, SIGTRAP);
    if (nest-- > 0)
        __asm__ volatile("int3");
}

static void leave(int sig)
{
    traps++;
    siglongjmp(out, sig);
}

static void on_alarm(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)info;
    alarms++;
    inside = blocked();
    saved = sigismember(&((ucontext_t *)context)->uc_sigmask, SIGTRAP);
}

static void handle(int sig, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | flags;
    sigaction(sig, &action, NULL);
}

static const char *handler_of(int sig)
{
    struct sigaction action;
    sigaction(sig, NULL, &action);
    return action.sa_handler == SIG_DFL ? "default"
           : action.sa_handler == SIG_IGN ? "ignored" : "handled";
}

static void tell(const char *what)
{
    printf("%s: traps %d, code %d, %s, value %d, inside %d, saved %d, blocked %d, pending %d, %s\n",
           what, traps, code, sender == getpid() ? "own" : "other", value, inside, saved, blocked(),
           pending(), handler_of(SIGTRAP));
    traps = code = value = inside = saved = sender = 0;
}

static void work(void)
{
    for (volatile int i = 0; i < 100; i++)
        ;
}

static void alarm_soon(void)
{
    struct itimerval timer = { { 0, 0 }, { 0, 200000 } };
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void pend(void)
{
    sigprocmask(SIG_BLOCK, &trap, NULL);
    work();
    tell("blocked");
    raise(SIGTRAP);
    work();
    tell("raised");
    sigprocmask(SIG_UNBLOCK, &trap, NULL);
    tell("unblocked");
    sigprocmask(SIG_BLOCK, &trap, NULL);
    sigqueue(getpid(), SIGTRAP, (union sigval) { .sival_int = 42 });
    work();
    sigprocmask(SIG_UNBLOCK, &trap, NULL);
    tell("queued");
    raise(SIGTRAP);
    tell("raised");
    kill(getpid(), SIGTRAP);
    tell("killed");
    /* The kernel ignores the high half of an int. */
    syscall(SYS_rt_sigprocmask, 5L << 32 | SIG_BLOCK, &trap, NULL, 8);
    raise(SIGTRAP);
    work();
    tell("blocked");
    syscall(SYS_rt_sigprocmask, 5L << 32 | SIG_UNBLOCK, &trap, NULL, 8);
    work();
    tell("unblocked");
}

static void instructions(void)
{
    __asm__ volatile("int3");
    tell("int3");
    handle(SIGTRAP, on_trap, SA_NODEFER);
    nest = 2;
    __asm__ volatile("int3");
    tell("nested");
    handle(SIGTRAP, on_trap, SA_RESETHAND);
    __asm__ volatile("int3");
    tell("once");
    struct sigaction action = { .sa_handler = leave };
    sigaction(SIGTRAP, &action, NULL);
    for (volatile int i = 0; i < 3; i++) {
        if (!sigsetjmp(out, 1))
            __asm__ volatile("int3");
        work();
    }
    tell("left");
}

static void ignored(void)
{
    signal(SIGTRAP, SIG_IGN);
    work();
    raise(SIGTRAP);
    kill(getpid(), SIGTRAP);
    tell("ignored");
    sigprocmask(SIG_BLOCK, &trap, NULL);
    raise(SIGTRAP);
    work();
    tell("ignored and blocked");
    sigprocmask(SIG_UNBLOCK, &trap, NULL);
    tell("ignored again");
    printf("was ignored: %d\n", signal(SIGTRAP, SIG_DFL) == SIG_IGN);
    tell("default");
    sigprocmask(SIG_BLOCK, &trap, NULL);
    raise(SIGTRAP);
    work();
    signal(SIGTRAP, SIG_IGN);
    tell("dropped");
    sigprocmask(SIG_UNBLOCK, &trap, NULL);
}

static void waits(void)
{
    handle(SIGTRAP, on_trap, 0);
    sigprocmask(SIG_BLOCK, &trap, NULL);
    raise(SIGTRAP);
    work();
    int sig = 0;
    sigwait(&trap, &sig);
    siginfo_t info;
    kill(getpid(), SIGTRAP);
    work();
    sigwaitinfo(&trap, &info);
    printf("sigwait %d, sigwaitinfo %d %d\n", sig, info.si_code, info.si_pid == getpid());
    raise(SIGTRAP);
    struct timespec soon = { 0, 1000 };
    sig = sigtimedwait(&trap, &info, &soon);
    printf("sigtimedwait %d %d %d, ", sig, info.si_code, info.si_pid == getpid());
    printf("nothing %d\n", sigtimedwait(&trap, &info, &soon) < 0 && errno == EAGAIN);
    int fd = signalfd(-1, &trap, 0);
    struct signalfd_siginfo read_info = { 0 };
    sigqueue(getpid(), SIGTRAP, (union sigval) { .sival_int = 7 });
    work();
    printf("signalfd %zd", read(fd, &read_info, sizeof read_info));
    printf(" %u %d\n", read_info.ssi_signo, read_info.ssi_int);
    tell("waited");
    sigset_t suspend;
    sigfillset(&suspend);
    sigdelset(&suspend, SIGTRAP);
    raise(SIGTRAP);
    printf("sigsuspend %d\n", sigsuspend(&suspend) < 0 && errno == EINTR);
    tell("suspended");
}

/* SIGALRM only comes inside of calls, with or without SIGTRAP. */
static void temporary_masks(void)
{
    sigset_t alarm_set, mask;
    sigemptyset(&alarm_set);
    sigaddset(&alarm_set, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm_set, NULL);
    handle(SIGALRM, on_alarm, 0);
    for (int with = 0; with < 2; with++) {
        sigfillset(&mask);
        sigdelset(&mask, SIGALRM);
        if (!with)
            sigdelset(&mask, SIGTRAP);
        alarm_soon();
        struct timespec long_time = { 30, 0 };
        int result = ppoll(NULL, 0, &long_time, &mask);
        printf("ppoll %d, alarms %d, inside %d, saved %d\n", result, alarms, inside, saved);
        alarm_soon();
        result = sigsuspend(&mask);
        printf("sigsuspend %d, alarms %d, inside %d, saved %d\n", result, alarms, inside, saved);
        tell("afterwards");
    }
    sigprocmask(SIG_UNBLOCK, &alarm_set, NULL);
}

/* SIGTRAP waits while another signal comes, in the program and not in a call. */
static void among_others(void)
{
    handle(SIGALRM, on_alarm, 0);
    sigprocmask(SIG_BLOCK, &trap, NULL);
    sigqueue(getpid(), SIGTRAP, (union sigval) { .sival_int = 11 });
    alarms = 0;
    alarm_soon();
    while (!alarms)
        work();
    tell("alarm");
    sigprocmask(SIG_UNBLOCK, &trap, NULL);
    tell("trap");
    sigprocmask(SIG_BLOCK, &trap, NULL);
    raise(SIGTRAP);
    alarm_soon();
    while (alarms < 2)
        work();
    sigprocmask(SIG_UNBLOCK, &trap, NULL);
    tell("trap");
}

static volatile int stage;

static void *thread(void *argument)
{
    (void)argument;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    stage = 1;
    while (stage < 2)
        work();
    tell("in a thread");
    pthread_sigmask(SIG_UNBLOCK, &trap, NULL);
    tell("in a thread");
    __asm__ volatile("int3");
    tell("in a thread");
    return NULL;
}

static void threads(void)
{
    pthread_t id;
    sigprocmask(SIG_UNBLOCK, &trap, NULL);
    handle(SIGTRAP, on_trap, 0);
    pthread_create(&id, NULL, thread, NULL);
    while (stage < 1)
        work();
    pthread_kill(id, SIGTRAP);
    stage = 2;
    pthread_join(id, NULL);
    tell("joined");
    __asm__ volatile("int3");
    tell("int3");
}

static void children(const char *self)
{
    fflush(stdout);
    sigprocmask(SIG_BLOCK, &trap, NULL);
    work();
    if (fork() == 0) {
        tell("child");
        fflush(stdout);
        execl(self, self, "child", NULL);
    }
    wait(NULL);
    tell("parent");
    sigprocmask(SIG_UNBLOCK, &trap, NULL);
}

static void die(const char *how)
{
    fflush(stdout);
    handle(SIGTRAP, on_trap, 0);
    if (!strcmp(how, "blocked"))
        sigprocmask(SIG_BLOCK, &trap, NULL);
    else if (!strcmp(how, "inside"))
        nest = 1;
    else if (!strcmp(how, "ignored"))
        signal(SIGTRAP, SIG_IGN);
    else
        signal(SIGTRAP, SIG_DFL);
    work();
    if (!strcmp(how, "raised"))
        raise(SIGTRAP);
    else
        __asm__ volatile("int3");
    puts("alive");
}

int main(int argc, char **argv)
{
    sigemptyset(&trap);
    sigaddset(&trap, SIGTRAP);
    if (argc > 1 && !strcmp(argv[1], "child")) {
        tell("executed");
        return 0;
    }
    tell("start");
    if (argc > 1) {
        die(argv[1]);
        return 0;
    }
    handle(SIGTRAP, on_trap, 0);
    pend();
    instructions();
    ignored();
    waits();
    temporary_masks();
    among_others();
    threads();
    children(argv[0]);
    return 3;
}
