/* Code that is made and changed while it runs: a function in writable memory is patched between
   calls, and once by itself, in the very run of instructions that executes the change. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef int (*function)(void);

int main(void)
{
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return 77;
    static const unsigned char template[] = { 0xb8, 0, 0, 0, 0, 0xc3 };    /* mov $0,%eax; ret */
    memcpy(code, template, sizeof template);
    int sum = 0;
    for (int i = 0; i < 20; i++) {
        code[1] = (unsigned char)i;
        sum += ((function)code)();
        if (i == 10)
            code[5] = 0x90, code[6] = 0xc3;     /* nop; ret */
    }
    /* movb $0x2a, 1(%rip): changes the operand of the instruction that follows it */
    static const unsigned char patching[] = {
        0xc6, 0x05, 0x01, 0x00, 0x00, 0x00, 0x2a, 0xb8, 0, 0, 0, 0, 0xc3
    };
    memcpy(code + 64, patching, sizeof patching);
    sum += ((function)(code + 64))();
    mprotect(code, 4096, PROT_READ | PROT_EXEC);
    sum += ((function)code)();
    printf("sum %d\n", sum);
    return 0;
}
