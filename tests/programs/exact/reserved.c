// Memory as sanitizers and garbage collectors have it: terabytes are reserved, and a few pages of them used.
// The argument "freed" makes AddressSanitizer end the program, if it is compiled with that.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TERABYTE (1UL << 40)

static long *at;

__attribute__((noinline)) static void set(long value)
{
    *at = value;
}

int main(int argc, char **argv)
{
    char *memory = mmap(0, 8 * TERABYTE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        puts("no room");
        return 0;
    }
    for (long part = 0; part < 8; part++)
        memset(memory + part * TERABYTE + part * 0x5000, (int)part + 1, 100);
    memory[8 * TERABYTE - 1] = 9;
    at = (long *)(memory + 5 * TERABYTE);
    for (long value = 1; value <= 5; value++)
        set(value);
    int *numbers = malloc(40);
    numbers[3] = 7;
    free(numbers);
    if (argc > 1 && !strcmp(argv[1], "freed"))
        return numbers[argc + 1];
    *(volatile int *)8 = 1;
    return 0;
}
