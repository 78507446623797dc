/* The surroundings of a generated program, which is blocks.inc. A block begins with FUEL, so that
   all programs end; then the registers, the flags, the data and what the signal handlers saw are
   summed up and printed. A program runs on a stack of its own, so that nothing depends on the
   environment.

   What a block may count on: %rsp leads to addresses of code only; FS is nothing; the direction
   flag is clear. Where a fault is to happen, `resume` holds where to go on. */

    .set SYS_write, 1
    .set SYS_mprotect, 10
    .set SYS_rt_sigaction, 13
    .set SYS_rt_sigreturn, 15
    .set SYS_getpid, 39
    .set SYS_gettid, 186
    .set SYS_exit_group, 231
    .set ROOTS, 64              /* return addresses at the bottom of the stack */

    .macro FUEL
    pushfq
    decq fuel(%rip)
    js finish
    popfq
    .endm

    .macro MIX source           /* into %rax */
    rol $7, %rax
    xor \source, %rax
    imul mixer(%rip), %rax
    .endm

    .text
    .globl ENTRY
ENTRY:
    lea stack_top(%rip), %rsp
    lea action(%rip), %rsi
    lea handler(%rip), %rax
    mov %rax, (%rsi)
    lea restorer(%rip), %rax
    mov %rax, 16(%rsi)
    lea signals(%rip), %rbx
1:  movzbl (%rbx), %edi
    test %edi, %edi
    jz 2f
    lea action(%rip), %rsi
    xor %edx, %edx
    mov $8, %r10d
    mov $SYS_rt_sigaction, %eax
    syscall
    inc %rbx
    jmp 1b
2:  lea changing(%rip), %rdi
    lea changing_end(%rip), %rsi
    sub %rdi, %rsi
    mov $7, %edx
    mov $SYS_mprotect, %eax
    syscall
    lea forbidden(%rip), %rdi
    mov $4096, %esi
    xor %edx, %edx
    mov $SYS_mprotect, %eax
    syscall
    mov $SYS_getpid, %eax
    syscall
    mov %rax, pid(%rip)
    mov $SYS_gettid, %eax
    syscall
    mov %rax, tid(%rip)
    call fill_table
    mov seed(%rip), %rax
    lea data(%rip), %rdi
    mov $(DATA_BYTES / 8), %ecx
3:  imul mixer(%rip), %rax
    add $12345, %rax
    ror $11, %rax
    stosq
    loop 3b
    lea data(%rip), %rdi
    mov (%rdi), %rax
    mov 8(%rdi), %rbx
    mov 16(%rdi), %rcx
    mov 24(%rdi), %rdx
    mov 32(%rdi), %rsi
    mov 40(%rdi), %rbp
    mov 48(%rdi), %r8
    mov 56(%rdi), %r9
    mov 64(%rdi), %r10
    mov 72(%rdi), %r11
    mov 80(%rdi), %r12
    mov 88(%rdi), %r13
    mov 96(%rdi), %r14
    mov 104(%rdi), %r15
    mov 112(%rdi), %rdi
    pxor %xmm0, %xmm0
    pxor %xmm1, %xmm1
    pxor %xmm2, %xmm2
    pxor %xmm3, %xmm3
restart:
    push %rdi
    push %rcx
    push %rax
    lea restart(%rip), %rax
    lea stack_top - 8 * ROOTS(%rip), %rdi
    mov $ROOTS, %ecx
    rep stosq
    pop %rax
    pop %rcx
    pop %rdi
    lea stack_top - 8 * ROOTS(%rip), %rsp
    jmp first_block

finish:
    popfq
    cld
    mov %rax, registers(%rip)
    mov %rbx, registers + 8(%rip)
    mov %rcx, registers + 16(%rip)
    mov %rdx, registers + 24(%rip)
    mov %rsi, registers + 32(%rip)
    mov %rdi, registers + 40(%rip)
    mov %rbp, registers + 48(%rip)
    mov %r8, registers + 56(%rip)
    mov %r9, registers + 64(%rip)
    mov %r10, registers + 72(%rip)
    mov %r11, registers + 80(%rip)
    mov %r12, registers + 88(%rip)
    mov %r13, registers + 96(%rip)
    mov %r14, registers + 104(%rip)
    mov %r15, registers + 112(%rip)
    mov %rsp, registers + 120(%rip)
    movups %xmm0, registers + 128(%rip)
    movups %xmm1, registers + 144(%rip)
    movups %xmm2, registers + 160(%rip)
    movups %xmm3, registers + 176(%rip)
    lea stack_top(%rip), %rsp
    lea sums(%rip), %r8
    mov handled(%rip), %rax
    mov %rax, (%r8)
    mov handler_sum(%rip), %rax
    mov %rax, 8(%r8)
    lea registers(%rip), %rsi
    mov $(192 / 8), %ecx
    call sum
    lea data(%rip), %rsi
    mov $(DATA_BYTES / 8), %ecx
    call sum
    lea changing(%rip), %rsi
    lea changing_end(%rip), %rcx
    sub %rsi, %rcx
    shr $3, %rcx
    call sum
    /* all sums in hexadecimal digits */
    lea sums(%rip), %rsi
    lea line(%rip), %rdi
    mov $5, %ebp
4:  mov (%rsi), %rdx
    add $8, %rsi
    mov $16, %ecx
5:  rol $4, %rdx
    mov %edx, %eax
    and $15, %eax
    lea digits(%rip), %rbx
    movzbl (%rbx,%rax), %eax
    stosb
    dec %ecx
    jnz 5b
    mov $' ', %al
    dec %ebp
    jnz 6f
    mov $'\n', %al
6:  stosb
    test %ebp, %ebp
    jnz 4b
    mov $1, %edi
    lea line(%rip), %rsi
    mov $(5 * 17), %edx
    mov $SYS_write, %eax
    syscall
    mov sums + 32(%rip), %rdi
    and $63, %edi
    mov $SYS_exit_group, %eax
    syscall
    hlt

/* The sum of %rcx words at %rsi, into the next of `sums`. */
sum:
    mov $1, %eax
7:  mov (%rsi), %rdx
    MIX %rdx
    add $8, %rsi
    dec %rcx
    jnz 7b
    mov summed(%rip), %rdx
    lea sums(%rip), %rdi
    mov %rax, (%rdi,%rdx,8)
    incq summed(%rip)
    ret

/* %edi: signal; %rsi: siginfo_t; %rdx: ucontext_t, whose registers (REG_R8 to REG_RIP, then the
   flags) begin at 40. */
handler:
    incq handled(%rip)
    mov handler_sum(%rip), %rax
    MIX %rdi
    movslq 8(%rsi), %rcx        /* si_code */
    MIX %rcx
    cmp $10, %edi               /* SIGUSR1 is sent: by whom is no matter */
    je 1f
    mov 16(%rsi), %rcx          /* si_addr */
    MIX %rcx
    mov 192(%rdx), %rcx         /* REG_ERR */
    MIX %rcx
    mov 200(%rdx), %rcx         /* REG_TRAPNO */
    MIX %rcx
1:  xor %ecx, %ecx
2:  cmp $10, %edi
    jne 3f
    cmp $8, %ecx                /* RDI and RSI hold who sends it */
    je 4f
    cmp $9, %ecx
    je 4f
3:  mov 40(%rdx,%rcx,8), %r8
    MIX %r8
4:  inc %ecx
    cmp $17, %ecx
    jb 2b
    mov 176(%rdx), %ecx
    and $0xcd5, %ecx            /* CF to OF, without TF and IF */
    MIX %rcx
    mov 184(%rdx), %rcx
    MIX %rcx
    mov %rax, handler_sum(%rip)
    add %rax, 64(%rdx)          /* R11 */
    xor %rax, 136(%rdx)         /* RDX */
    cmp $10, %edi
    je 5f                       /* behind SYSCALL, RCX is known */
    add %rax, 152(%rdx)         /* RCX */
5:  mov resume(%rip), %rcx
    test %rcx, %rcx
    jz 6f
    mov %rcx, 168(%rdx)         /* RIP */
    movq $0, resume(%rip)
6:  ret
restorer:
    mov $SYS_rt_sigreturn, %eax
    syscall

    .data
mixer:      .quad 0x9e3779b97f4a7c15
fuel:       .quad FUEL_BLOCKS
seed:       .quad SEED
summed:     .quad 2
signals:    .byte 4, 5, 7, 8, 10, 11, 0
digits:     .ascii "0123456789abcdef"
    .balign 8
action:     .quad 0, 0x44000004, 0, 0       /* SA_SIGINFO, SA_RESTORER, SA_NODEFER */

    .bss
    .balign 16
pid:        .skip 8
tid:        .skip 8
resume:     .skip 8
handled:    .skip 8
handler_sum: .skip 8
registers:  .skip 192
sums:       .skip 64
line:       .skip 128
    .balign 4096
data:       .skip DATA_BYTES
    .balign 64
table:      .skip TABLE_BYTES
    .balign 4096
other_stack: .skip 4096
other_stack_top: .skip 64
    .balign 4096
    .skip 4096
forbidden:  .skip 4096
    .skip 1 << 20
stack_top:  .skip 64

    .section .rodata
    .balign 4096
constant:   .quad 0x0123456789abcdef, 0xfedcba9876543210
    .skip 4080

    .include "blocks.inc"
    .section .note.GNU-stack, "", @progbits
