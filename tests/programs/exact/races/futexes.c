// A lock made of a futex by hand, with waiters that are requeued and that wait with a limit.
#include "order.h"
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
static _Atomic int word, gate, other;
static volatile long waits;
static int rounds;

static long futex(_Atomic int *at, int act, int value, void *limit, void *to, int last)
{
    return syscall(SYS_futex, at, act | FUTEX_PRIVATE_FLAG, value, limit, to, last);
}

static void lock(void)
{
    int old = 0;
    if (atomic_compare_exchange_strong(&word, &old, 1))
        return;
    while (atomic_exchange(&word, 2)) {
        waits++;
        futex(&word, FUTEX_WAIT, 2, 0, 0, 0);
    }
}

static void unlock(void)
{
    if (atomic_exchange(&word, 0) == 2)
        futex(&word, FUTEX_WAKE, 1, 0, 0, 0);
}

static void *run(void *number)
{
    for (int i = 0; i < rounds * 100; i++) {
        lock();
        note((unsigned long)number);
        work(30);
        unlock();
        struct timespec limit = {0, 30000};
        int seen = gate;
        if (i % 20 == (long)number) {
            futex(&gate, FUTEX_WAIT, seen, &limit, 0, 0);
            futex(&other, FUTEX_WAKE, 9, 0, 0, 0);
        } else if (i % 20 == 9) {
            gate++;
            note((unsigned long)futex(&gate, FUTEX_REQUEUE, 1, (void *)2, &other, 0) + 32);
            note((unsigned long)futex(&other, FUTEX_WAKE, 9, 0, 0, 0) + 64);
        }
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    in_threads(5, run);
    return outcome((unsigned long)waits);
}
