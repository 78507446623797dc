// A program whose first instruction is the last byte of the first half of its page.
        .globl  _start
        .balign 4096
        .skip   0x7ff
_start: nop
        mov     $60, %eax
        mov     $7, %edi
        syscall
