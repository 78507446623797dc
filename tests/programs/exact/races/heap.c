// Allocations that threads give each other to free; their order decides which addresses they get.
#include "order.h"
#include <stdatomic.h>
static void *_Atomic shelf[16];
static int rounds;

static void *run(void *number)
{
    unsigned long me = (unsigned long)number, seed = me + 1;
    for (int i = 0; i < rounds * 300; i++) {
        seed = seed * 6364136223846793005ul + 1442695040888963407ul;
        unsigned long size = (seed >> 33) % (i % 40 == 0 ? 300000 : 900) + 16;
        unsigned char *memory = malloc(size);
        memset(memory, (int)me, size < 64 ? size : 64);
        memory[size - 1] = (unsigned char)i;
        unsigned char *old = atomic_exchange(&shelf[(seed >> 20) % 16], memory);
        if (old) {
            note(old[0] + ((unsigned long)old & 0xff0));
            if (i % 5 == 0)
                old = realloc(old, size + 100);
            free(old);
        }
        if (i % 90 == 89)
            note((unsigned long)calloc(3, 1000) & 0xff0);
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    in_threads(5, run);
    return outcome(0);
}
