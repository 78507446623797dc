// C11 atomics of all widths, whose old values are the outcome; and a ticket lock that spins.
#include "order.h"
#include <sched.h>
#include <stdatomic.h>
static _Atomic unsigned long sum, bits;
static _Atomic unsigned short small;
static _Atomic unsigned char tiny;
static _Atomic unsigned ticket, serving;
static int rounds;

static void *run(void *number)
{
    unsigned long me = (unsigned long)number, seen = 0;
    for (int i = 0; i < rounds * 400; i++) {
        seen = seen * 31 + atomic_fetch_add(&sum, me + 1);
        seen += atomic_fetch_xor(&bits, 1ul << (me * 7 + (unsigned long)i % 7));
        seen += atomic_exchange(&small, (unsigned short)(i + (int)me));
        seen ^= atomic_fetch_sub_explicit(&tiny, 3, memory_order_relaxed);
        if (i % 16 == 0) {
            unsigned mine = atomic_fetch_add(&ticket, 1);
            for (int spins = 0; atomic_load_explicit(&serving, memory_order_acquire) != mine;)
                if (++spins % 100 == 0)
                    sched_yield();
            note(seen);
            atomic_fetch_add_explicit(&serving, 1, memory_order_release);
        }
    }
    note(seen);
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    in_threads(4, run);
    return outcome(bits % 1000);
}
