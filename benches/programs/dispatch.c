/* An interpreter: an indirect jump every few instructions, so that a trace is large. */
#include <stdio.h>

#define NEXT                            \
    do {                                \
        seed = seed * 1103515245 + 12345; \
        goto *handlers[seed >> 30];     \
    } while (0)

int main(void)
{
    static void *const handlers[] = {&&add, &&flip, &&turn, &&count};
    unsigned seed = 1, value = 0;
    int left = 5000;
    NEXT;
add:
    value += seed;
    NEXT;
flip:
    value ^= seed;
    NEXT;
turn:
    value = value << 3 | value >> 29;
    NEXT;
count:
    if (--left > 0)
        NEXT;
    printf("%u\n", value);
    return 0;
}
