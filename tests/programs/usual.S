/* Indirect branches in a loop: some have one target, and later another one, some have two in turn, and one
   has many. RCX, RDX and R11 are alive at the targets, and so are the flags. */
#include <asm/unistd.h>

    .text
first:
    add %rdx, %r8
    adc $0, %r9
    ret
second:
    lea 3(%r8,%rcx), %r8
    ret $8
third:
    xor %r11, %r8
    sbb $0, %r9
    jmp *%r13

    .globl _start
_start:
    xor %r8d, %r8d
    xor %r9d, %r9d
    mov $ROUNDS, %ebp
    lea first(%rip), %rbx
again:
    cmp $(ROUNDS / 2), %ebp
    jne 1f
    lea other(%rip), %rbx
1:
    mov %r8, %rcx
    lea 5(%r9,%rbp), %rdx
    mov %rbp, %r11
    cmp %rcx, %rdx
    call *%rbx
    adc %rdx, %r8
    /* From two places in turn. */
    push %rbp
    test $1, %ebp
    jz 2f
    call second
    jmp 3f
2:
    call second
    inc %r9
3:
    lea 4f(%rip), %r13
    lea third(%rip), %r11
    cmp %r9, %r8
    call *%r11
4:
    pop %rax
    mov %ebp, %eax
    and $1, %eax
    lea in_turn(%rip), %rdx
    jmp *(%rdx,%rax,8)
even:
    sub %rdx, %r8
    jmp 5f
odd:
    rol $7, %r8
5:
    imul $0x5bd1e995, %r8, %rax
    shr $9, %rax
    and $7, %eax
    lea many(%rip), %rcx
    call *(%rcx,%rax,8)
    dec %ebp
    jnz again
    mov $__NR_exit_group, %eax
    xor %edi, %edi
    syscall

other:
    not %r9
    add %r11, %r9
    ret
    .rept 8
    nop
    inc %r9
    add %rcx, %r8
    ret
    .endr

    .data
    .balign 8
in_turn:
    .quad even, odd
many:
    .set at, 0
    .rept 8
    .quad other + 7 + at * 8
    .set at, at + 1
    .endr
