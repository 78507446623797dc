/* A loop of all kinds of branches, and a table of what the registers are before each of its
   instructions. The counters go up one after the other, so that at each instruction those that
   were raised are one ahead of those that were not.

   An entry of `storm_points`: address; counters raised; bytes pushed; flags (CF, ZF), or -1 where
   counters and flags are not looked at. */

    .set RAISED, 0
    .set PUSHED, 0
    .set FLAGS, 0

    .macro AT
.Lat\@:
    .pushsection .data.rel.ro.points, "aw"
    .quad .Lat\@
    .long RAISED, PUSHED, FLAGS, 0
    .popsection
    .endm

    .macro RAISE register
    AT
    lea 1(\register), \register
    .set RAISED, RAISED + 1
    .endm

    .macro DO instruction:vararg
    AT
    \instruction
    .endm

    .pushsection .data.rel.ro.points, "aw"
    .globl storm_points
storm_points:
    .popsection

    .text
    .globl storm_loop, storm_loop_end
    .type storm_loop, @function
/* storm_loop(volatile int *go_on): all counters begin at 0. */
storm_loop:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rdi, go_on(%rip)
    mov %rsp, %rbp
    mov %rsp, storm_stack(%rip)
    lea .Lindirect(%rip), %rax
    mov %rax, cell(%rip)
    xor %eax, %eax
    xor %ebx, %ebx
    xor %ecx, %ecx
    xor %edx, %edx
    xor %esi, %esi
    xor %edi, %edi
    xor %r8d, %r8d
    xor %r9d, %r9d
    xor %r10d, %r10d
    xor %r12d, %r12d
    xor %r13d, %r13d
    xor %r14d, %r14d
    xor %r15d, %r15d
    stc
    cmp %rax, %rax
    .set FLAGS, 0x40

storm_loop_start:
    .globl storm_loop_start
    RAISE %rax
    DO je .La
    DO ud2
.La:
    DO jne .Lnever
    RAISE %rbx
    DO call .Lfunction
    RAISE %rcx
    DO lea .Lb(%rip), %r11
    DO jmp *%r11
.Lnever:
    DO ud2
.Lb:
    RAISE %rdx
    DO jmp *cell(%rip)
.Lindirect:
    DO lea .Lfunction(%rip), %r11
    DO call *%r11
    RAISE %rsi
    DO push %r11
    .set PUSHED, 8
    DO push %rax
    .set PUSHED, 16
    DO pop %r11
    .set PUSHED, 8
    DO pop %r11
    .set PUSHED, 0
    DO stc
    .set FLAGS, 0x41
    DO jnc .Lnever2
    RAISE %rdi
    DO jmp .Lfar
.Lnever2:
    DO ud2
    .skip 200, 0x90
.Lfar:
    DO jc .Lc
    DO ud2
.Lc:
    RAISE %r8
    DO call .Lnext
.Lnext:
    .set PUSHED, 8
    DO pop %r11
    .set PUSHED, 0
    DO lea .Ld(%rip), %r11
    DO push %r11
    .set PUSHED, 8
    DO ret
    .set PUSHED, 0
.Ld:
    RAISE %r9
    /* RCX is 0 for a moment */
    .set FLAGS, -1
    DO mov %rcx, %r11
    DO mov $0, %ecx
    DO jrcxz .Le
    DO ud2
.Le:
    DO mov $3, %ecx
.Lround:
    DO loop .Lround
    DO mov %r11, %rcx
    .set FLAGS, 0x41
    RAISE %r10
    DO push $0
    .set PUSHED, 8
    DO call .Lpops
    .set PUSHED, 0
    RAISE %r12
    .set FLAGS, -1
    DO mov %rax, saved(%rip)
    DO mov %rcx, saved + 8(%rip)
    DO mov $39, %eax
    DO syscall
    DO mov saved(%rip), %rax
    DO mov saved + 8(%rip), %rcx
    DO mov go_on(%rip), %r11
    DO cmpl $0, (%r11)
    DO je storm_loop_end
    DO cmp %rax, %rax
    .set FLAGS, 0x40
    RAISE %r13
    DO movups %xmm0, -64(%rsp)
    RAISE %r14
    RAISE %r15
    .set RAISED, 0
    DO jmp storm_loop_start

/* A function that is called with one counter more each time has an entry for each. */
.Lfunction:
    .set PUSHED, 8
    .set FLAGS, -1
    DO mov (%rsp), %r11
    DO jmp .Ltail
.Ltail:
    DO ret
.Lpops:
    .set PUSHED, 16
    DO ret $8

storm_loop_end:
    .set PUSHED, 0
    .pushsection .data.rel.ro.points, "aw"
    .quad 0
    .popsection
    mov storm_stack(%rip), %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret

    .bss
    .globl storm_stack
    .balign 8
storm_stack: .skip 8
go_on:      .skip 8
cell:       .skip 8
saved:      .skip 16
    .section .note.GNU-stack, "", @progbits
