// Initialisation that is checked twice, and torn: the pointer is there before what it points to.
#include "order.h"
struct thing {
    long first, second, by;
};
static struct thing things[256];
static struct thing *volatile made[256];
static volatile long torn, twice;
static int rounds;

static void *run(void *number)
{
    for (int i = 0; i < rounds * 2000; i++) {
        int n = (i / 8) % 256;
        struct thing *thing = made[n];
        if (!thing) {
            thing = &things[n];
            twice += thing->by != 0;
            made[n] = thing;
            thing->by = (long)number + 1;
            work(5);
            ((volatile struct thing *)thing)->first = i;
            ((volatile struct thing *)thing)->second = i;
        }
        if (thing->first != thing->second)
            torn++;
        note((unsigned long)(thing->by * 1000 + thing->first));
        if (i % 64 == 63)
            made[(n + 7) % 256] = 0;
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    in_threads(3, run);
    return outcome((unsigned long)(torn * 1000 + twice));
}
