// A system call by INT 0x80, which leaves R11 and RCX as they are.

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
    return 0;
}
