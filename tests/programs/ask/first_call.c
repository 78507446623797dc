/* Its first instruction is a system call: read(0, NULL, 0), as the kernel clears all registers. */
__asm__(".globl _start\n"
        "_start:\n\t"
        "syscall\n\t"
        "mov %rax, %rbx\n\t"
        "ud2\n");
