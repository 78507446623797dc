// System calls by INT 0x80, which leaves R11 and RCX as they are: one whose number is another call's
// by SYSCALL (pwritev is 334, as rseq is there), and one with high bits, which the kernel ignores.

#include <stdio.h>

int main(void) {
    unsigned long r11, rcx, pid;
    __asm__ volatile("mov $0x1ff, %%r11\n"
                     "mov $0x77, %%ecx\n"
                     "mov $20, %%eax\n"
                     "int $0x80\n"
                     "mov %%r11, %0\n"
                     "mov %%rcx, %1\n"
                     : "=r"(r11), "=r"(rcx), "=a"(pid)
                     :
                     : "r11", "rcx");
    printf("%lx %lx %d\n", r11, rcx, pid > 1);
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(334), "b"(-1), "c"(0), "d"(0), "S"(0), "D"(0)
                     : "r8", "r9", "r10", "r11", "memory");
    printf("%ld", result);
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(0xdeadbeef00000014) : "r8", "r9", "r10", "r11");
    printf(" %d\n", result > 1);
    return 0;
}
