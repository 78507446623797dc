/* Signal handlers: in plain code, nested, during a system call that restarts, on an alternative
   stack, and left by siglongjmp. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t alarms, nested, faults;
static sigjmp_buf out;
static int pipe_fds[2];

static void on_usr2(int sig)
{
    (void)sig;
    nested++;
}

static void on_usr1(int sig)
{
    (void)sig;
    nested++;
    raise(SIGUSR2);
}

static void on_alarm(int sig)
{
    (void)sig;
    alarms++;
    if (write(pipe_fds[1], "x", 1) != 1)
        abort();
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)info, (void)context;
    faults++;
    siglongjmp(out, 1);
}

static void install(int sig, void (*handler)(int), int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(sig, &action, NULL);
}

int main(void)
{
    install(SIGUSR1, on_usr1, 0);
    install(SIGUSR2, on_usr2, 0);
    raise(SIGUSR1);

    if (pipe(pipe_fds))
        return 1;
    install(SIGALRM, on_alarm, SA_RESTART);
    /* Long enough that a program that is single-stepped is in its system call by then. */
    struct itimerval timer = { { 0, 0 }, { 0, 800000 } };
    setitimer(ITIMER_REAL, &timer, NULL);
    char byte = 0;
    ssize_t got = read(pipe_fds[0], &byte, 1);      /* interrupted, and restarted */

    install(SIGALRM, on_alarm, 0);
    setitimer(ITIMER_REAL, &timer, NULL);
    int interrupted = usleep(20000000) == -1 && errno == EINTR;

    static char stack[65536];
    stack_t alternative = { .ss_sp = stack, .ss_size = sizeof stack };
    sigaltstack(&alternative, NULL);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, NULL);
    for (volatile int i = 0; i < 3; i++) {
        if (!sigsetjmp(out, 1))
            *(volatile int *)8 = 1;
    }
    printf("nested %d, read %zd, interrupted %d, alarms %d, faults %d\n",
           nested, got, interrupted, alarms, faults);
    return 0;
}
