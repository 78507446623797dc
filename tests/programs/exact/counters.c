// Reads the time-stamp counter in two threads and in a handler of signals, by RDTSC and RDTSCP, which
// keep all that they do not set: flags, other registers, the stack and the red zone below it.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { ROUNDS = 20000 };

static volatile uint64_t in_handler;
static volatile int handled;

static inline uint64_t tsc(void) {
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static void handler(int signal) {
    in_handler += tsc() & 0xff;
    handled++;
    (void)signal;
}

// Returns 0 if an instruction kept the flags, RBX, RSI, R8 to R15 and the red zone, and set the upper
// halves of what it wrote to 0.
#define KEEPS(insn, result)                                                                        \
    __asm__ volatile("mov $-1, %%rax\n\tmov $-1, %%rdx\n\tmov $0x1234, %%rcx\n\t"                  \
                     "mov $0x77, %%r11\n\tmov $0x66, %%rsi\n\tmov $0x55, %%rdi\n\t"                \
                     "movq $0x5a5a, -8(%%rsp)\n\tmovq $0x6b6b, -120(%%rsp)\n\t"                    \
                     "mov %%rsp, %%r8\n\tcmp %%rsp, %%rsp\n\tstc\n\t" insn "\n\t"                  \
                     "setc %%r9b\n\tsetz %%r10b\n\t"                                               \
                     "and %%r9b, %%r10b\n\tmovzb %%r10b, %%r10\n\txor $1, %%r10\n\t"               \
                     "shr $32, %%rax\n\tor %%rax, %%r10\n\tshr $32, %%rdx\n\tor %%rdx, %%r10\n\t"  \
                     "shr $32, %%rcx\n\tor %%rcx, %%r10\n\t"                                       \
                     "xor %%rsp, %%r8\n\tor %%r8, %%r10\n\t"                                       \
                     "xor $0x77, %%r11\n\tor %%r11, %%r10\n\t"                                     \
                     "xor $0x66, %%rsi\n\tor %%rsi, %%r10\n\t"                                     \
                     "xor $0x55, %%rdi\n\tor %%rdi, %%r10\n\t"                                     \
                     "mov -8(%%rsp), %%r9\n\txor $0x5a5a, %%r9\n\tor %%r9, %%r10\n\t"              \
                     "mov -120(%%rsp), %%r9\n\txor $0x6b6b, %%r9\n\tor %%r9, %%r10\n\t"            \
                     "mov %%r10, %0\n\t"                                                           \
                     : "=m"(result)                                                                \
                     :                                                                             \
                     : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory")

static void *read_counters(void *number) {
    uint64_t last = 0, sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t low, high, processor;
        __asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(processor));
        uint64_t now = (uint64_t)high << 32 | low;
        sum += now % 1000 + processor;
        uint64_t plain = tsc();
        if (now < last || plain < now) {
            printf("thread %ld: the counter goes back\n", (long)number);
            exit(1);
        }
        last = plain;
    }
    return (void *)sum;
}

int main(void) {
    static uint64_t kept[2];
    KEEPS("rdtsc", kept[0]);
    KEEPS("rdtscp", kept[1]);
    printf("changed by them: %lx %lx\n", kept[0], kept[1]);
    signal(SIGALRM, handler);
    struct itimerval often = {{0, 700}, {0, 700}};
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_t other;
    pthread_create(&other, NULL, read_counters, (void *)2);
    uint64_t sum = (uint64_t)read_counters((void *)1);
    void *theirs;
    pthread_join(other, &theirs);
    while (handled < 5)
        sum += tsc();
    often = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    // Of each run its own.
    in_handler += sum + (uint64_t)theirs;
    return kept[0] | kept[1] ? 1 : 0;
}
