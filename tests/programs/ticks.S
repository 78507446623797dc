/* Jumps and calls to lower addresses: some rounds of a loop that ends, then a circle of them alone,
   which never ends. */

    .text
first:
    inc %r8
    ret
second:
    call first
    dec %r9
    ret

    .globl _start
_start:
    mov $50, %ebp
again:
    call second
    call first
    jmp 2f
1:
    add %r8, %r10
    jmp 3f
2:
    xor %r9, %r10
    jmp 1b
3:
    dec %ebp
    jnz again
circle:
    incq rounds(%rip)
    inc %r12
    jmp 5f
4:
    pop %rax
    add %rax, %r13
    jmp circle
5:
    mov rounds(%rip), %r14
    call 4b

    .bss
rounds:
    .quad 0
