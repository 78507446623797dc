/* Makes system calls whose numbers have high bits, which the kernel ignores: maps, runs, changes
   and moves code by them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define WIDE (0xdeadbeefUL << 32)

static long call(unsigned long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(WIDE | number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static void emit(unsigned char *at, int value)
{
    at[0] = 0xb8;
    memcpy(at + 1, &value, 4);
    at[5] = 0xc3;
}

static void run(void *at)
{
    printf(" %d", ((int (*)(void))at)());
}

int main(void)
{
    int all = PROT_READ | PROT_WRITE | PROT_EXEC, own = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *code = (void *)call(SYS_mmap, 0, 4096, all, own, -1, 0);
    emit(code, 1);
    run(code);
    emit(code, 2);
    run(code);
    call(SYS_mprotect, (long)code, 4096, PROT_READ | PROT_WRITE, 0, 0, 0);
    emit(code, 3);
    call(SYS_mprotect, (long)code, 4096, PROT_READ | PROT_EXEC, 0, 0, 0);
    run(code);
    code = (void *)call(SYS_mremap, (long)code, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED,
                        0x600000000000, 0);
    run(code);
    printf(" %ld", call(SYS_munmap, (long)code, 4096, 0, 0, 0, 0));
    printf(" %d\n", call(SYS_rseq, 16, 0, 0, 0, 0, 0) < 0);
    return 0;
}
