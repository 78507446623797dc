// Counters that threads increment without a lock.
#include "order.h"
static volatile long counters[3];
static int rounds;

static void *run(void *number)
{
    for (int i = 0; i < rounds * 3000; i++) {
        counters[i % 3]++;
        if (i % 16 == 0)
            note((unsigned long)number + (unsigned long)counters[i % 3]);
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    in_threads(4, run);
    return outcome((unsigned long)(counters[0] + counters[1] + counters[2]));
}
