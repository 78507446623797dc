/* Sums up, a thousand times, values that do not follow from the program's registers and memory: the
   time, the CPU's kind and number, random numbers, a system call's result. At the end it executes
   instructions that read the state of the kernel or of the x87 unit. */

    .set SYS_getpid, 39
    .set SYS_exit_group, 231

    .text
    .globl _start
_start:
    xor %r15d, %r15d
    mov $1000, %ebp
again:
    rdtsc
    shl $32, %rdx
    add %rdx, %r15
    add %rax, %r15
    rdtscp
    add %rcx, %r15
    mov $7, %eax
    xor %ecx, %ecx
    cpuid
    add %rax, %r15
    add %rbx, %r15
    add %rcx, %r15
    add %rdx, %r15
    rdrand %r12
    add %r12, %r15
    rdseed %r13
    add %r13, %r15
    xor %ecx, %ecx
    xgetbv
    add %rax, %r15
    add %rdx, %r15
    rdpid %r14
    add %r14, %r15
    mov $SYS_getpid, %eax
    syscall
    add %rax, %r15
    dec %ebp
    jnz again
    mov $0x33, %ecx
    lsl %ecx, %eax
    lar %ecx, %eax
    verr %cx
    xor %ecx, %ecx
    mov %ecx, %ds
    fxsave state(%rip)
    fnstenv state(%rip)
    fldenv state(%rip)
    mov $SYS_exit_group, %eax
    xor %edi, %edi
    syscall

    .bss
    .balign 16
state:
    .zero 512
