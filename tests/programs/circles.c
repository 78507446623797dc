/* Circles of direct branches, which give no packets: ended by a signal, a fault, a thread switch.
   Each is left by siglongjmp. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#define PAGE 4096
#ifndef CIRCLE_MICROSECONDS
#define CIRCLE_MICROSECONDS 40000
#endif

static sigjmp_buf out;
static char *pages;             /* none may be touched before a handler says so */
static volatile int retries, stop;
static volatile char *fault_at;

static void leave(int sig)
{
    siglongjmp(out, sig);
}

/* Makes the page that was touched accessible, and lets the instruction try again; leaves at the
   fourth, and where the stack has no room. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)context;
    fault_at = info->si_addr;
    if (retries++ < 3 && fault_at >= pages && fault_at < pages + 8 * PAGE) {
        mprotect((char *)((unsigned long)fault_at & -PAGE), PAGE, PROT_READ | PROT_WRITE);
        return;
    }
    siglongjmp(out, sig);
}

static void alarm_after(long microseconds)
{
    struct itimerval timer = { { 0, 0 }, { 0, microseconds } };
    setitimer(ITIMER_REAL, &timer, NULL);
}

__attribute__((noinline)) static void to_itself(void)
{
    __asm__ volatile("1: jmp 1b");
}

__attribute__((noinline)) static void of_two(void)
{
    __asm__ volatile("jmp 2f\n 1: nop\n jmp 3f\n 2: nop\n 3: nop\n jmp 1b");
}

/* Nothing but jumps. */
__attribute__((noinline)) static void of_jumps(void)
{
    __asm__ volatile("jmp 2f\n 1: jmp 3f\n 2: jmp 1b\n 3: jmp 2b");
}

/* Enters the circle in its middle, and runs into it again from above. */
__attribute__((noinline)) static void from_above(void)
{
    __asm__ volatile("jmp 2f\n 1: nop\n nop\n 2: nop\n nop\n jmp 1b");
}

__attribute__((noinline)) static void faulting(void)
{
    __asm__ volatile("1: movb $1, (%0)\n add $2048, %0\n jmp 1b" : : "r"(pages) : "memory");
}

__attribute__((noinline)) static void repeating(void)
{
    char *to = pages;
    long count;
    __asm__ volatile("1: mov $1000, %1\n rep stosb\n jmp 1b"
                     : "+D"(to), "=c"(count) : "a"(0) : "memory");
}

/* On a stack of 8 pages, which overflows. */
__attribute__((noinline)) static void calling(void)
{
    __asm__ volatile("mov %0, %%rsp\n 1: sub $40, %%rsp\n call 1b" : : "r"(pages + 8 * PAGE));
}

__attribute__((noinline)) static void calling_itself(void)
{
    __asm__ volatile("mov %0, %%rsp\n 1: call 1b" : : "r"(pages + 8 * PAGE));
}

static void *spin(void *argument)
{
    (void)argument;
    __asm__ volatile(".globl spinning\n spinning: jmp spinning");
    return NULL;
}

static void fresh_pages(void)
{
    if (pages)
        munmap(pages, 8 * PAGE);
    pages = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    retries = 0;
}

static const char *run(void (*circle)(void), long microseconds)
{
    fresh_pages();
    int sig = sigsetjmp(out, 1);
    if (!sig) {
        alarm_after(microseconds);
        circle();
    }
    alarm_after(0);
    return sig == SIGALRM ? "alarm" : "fault";
}

/* With any argument, no thread is in a circle at the end. */
int main(int argc, char **argv)
{
    (void)argv;
    static char stack[65536];
    stack_t alternative = { .ss_sp = stack, .ss_size = sizeof stack };
    sigaltstack(&alternative, NULL);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = leave;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGALRM, &action, NULL);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, NULL);

    const char *ends[] = {
        run(to_itself, CIRCLE_MICROSECONDS), run(to_itself, 1), run(of_two, CIRCLE_MICROSECONDS), run(of_jumps, CIRCLE_MICROSECONDS),
        run(from_above, CIRCLE_MICROSECONDS),
        run(faulting, 0), run(repeating, 0), run(calling, 0), run(calling_itself, 0),
    };
    if (argc == 1) {
        pthread_t thread;
        pthread_create(&thread, NULL, spin, NULL);
        for (volatile int i = 0; i < 3000; i++)
            ;
    }
    for (unsigned i = 0; i < sizeof ends / sizeof *ends; i++)
        printf("%s ", ends[i]);
    puts("done");
    return 0;
}
