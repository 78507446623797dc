// XSAVEC of all kinds. What it omits depends on the processor, so only what is restored is printed.
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#define BYTES 4096
static unsigned char areas[64][BYTES] __attribute__((aligned(4096)));
static uint64_t vectors[4], restored[4];
static volatile int faults, alarms;
static void *wanted;

#define LOAD "vmovdqu %[from], %%ymm7\n"
#define STORE "vmovdqu %%ymm7, %[to]\n"
#define OPERANDS [from] "m"(vectors), [at] "r"(area) : "rax", "rdx", "r11", "r12", "xmm7", "memory"

// A mask that the translator sees, as in the dynamic linker.
static void plain(void *area) {
    __asm__ volatile(LOAD "mov $0xee, %%eax\nmasked: xor %%edx, %%edx\nsaved: xsavec (%[at])\n"
                     "vpxor %%ymm7, %%ymm7, %%ymm7\nmov $0xee, %%eax\nxrstor (%[at])\n" STORE
                     : [to] "=m"(restored) : OPERANDS);
}

// One that it does not see.
static void hidden(void *area, volatile uint32_t *mask) {
    __asm__ volatile(LOAD "mov %[mask], %%eax\nxor %%edx, %%edx\nxsavec64 (%[at])\n"
                     "vpxor %%ymm7, %%ymm7, %%ymm7\nxrstor64 (%[at])\n" STORE
                     : [to] "=m"(restored) : [mask] "m"(*mask), OPERANDS);
}

// Other operands, R11 among them.
static void by_r11(void *area) {
    __asm__ volatile(LOAD "lea -64(%[at]), %%r11\nmov $8, %%r12\nmov $6, %%eax\nxor %%edx, %%edx\n"
                     "xsavec (%%r11, %%r12, 8)\nvpxor %%ymm7, %%ymm7, %%ymm7\n"
                     "xrstor (%%r11, %%r12, 8)\n" STORE
                     : [to] "=m"(restored) : OPERANDS);
}

static void expect(const char *what) {
    if (memcmp(vectors, restored, sizeof vectors))
        printf("%s: another value\n", what);
    memset(restored, 0, sizeof restored);
}

static void on_fault(int number, siginfo_t *info, void *context) {
    faults++;
    ucontext_t *all = context;
    if (wanted)
        mprotect(wanted, BYTES, PROT_READ | PROT_WRITE);
    else
        all->uc_mcontext.gregs[REG_RIP] += 3; // xsavec (%rdi) is over
}

static void on_alarm(int number) {
    alarms++;
}

int main(int argc, char **argv) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(0xd, 1, &a, &b, &c, &d) || !(a & 2) || !__builtin_cpu_supports("avx")) {
        printf("no XSAVEC\n");
        return 0;
    }
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 4; i++)
            vectors[i] = (round + 1) * 0x123456789abcdefULL << i;
        if (round % 4 == 1)
            __asm__ volatile("vzeroupper" ::: "memory");
        if (round % 4 == 2)
            __asm__ volatile("vzeroall" ::: "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "memory");
        if (round % 4 == 3 && __builtin_cpu_supports("avx512f"))
            __asm__ volatile("vmovdqu64 %0, %%ymm20\nkmovw %%eax, %%k3"
                             :: "m"(vectors) : "memory");
        memset(areas[round], 0, BYTES);
        plain(areas[round]);
        expect("plain");
        by_r11(areas[20 + round]);
        expect("r11");
        volatile uint32_t masks[] = {0xee, 6, 7, 0xe7, 0x26};
        hidden(areas[40 + round], &masks[round % 5]);
        expect("hidden");
    }

    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &fault, 0);
    // Misaligned.
    __asm__ volatile("mov $0xee, %%eax\nxor %%edx, %%edx\nxsavec (%%rdi)\n"
                     :: "D"(areas[60] + 8) : "rax", "rdx", "memory");
    // Over the end of what can be written.
    char *two = mmap(0, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(two + BYTES, BYTES, PROT_NONE);
    wanted = two + BYTES;
    plain(two + BYTES - 256);
    expect("faulted");
    printf("%d faults\n", faults);

    // Beside code that changes, in both pages.
    unsigned char *code = mmap(0, 2 * BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int sum = 0;
    for (int i = 0; i < 5; i++) {
        unsigned char give[] = {0xb8, i, 0, 0, 0, 0xc3};
        for (int page = 0; page < 2; page++) {
            unsigned char *at = code + page * BYTES + (page ? BYTES - 64 : 0);
            memcpy(at, give, sizeof give);
            sum += ((int (*)(void))at)();
        }
        plain(code + BYTES - (i % 2 ? 256 : 1024));
        expect("code");
    }
    printf("%d\n", sum);

    signal(SIGALRM, on_alarm);
    struct itimerval often = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &often, 0);
    int wanted = argc > 2 ? atoi(argv[2]) : 200;
    while (alarms < wanted) {
        plain(areas[61]);
        expect("alarm");
        by_r11(areas[62]);
        expect("alarm");
    }
    often = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, 0);
    printf("%d alarms\n", alarms >= wanted);
    return 0;
}
