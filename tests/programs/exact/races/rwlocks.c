// A table that readers and writers share, with a lock that they try for first.
#include "order.h"
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static long table[32];
static volatile long busy;
static int rounds;

static void *run(void *number)
{
    unsigned long me = (unsigned long)number;
    for (int i = 0; i < rounds * 80; i++) {
        if (i % 8 == (int)me) {
            if (pthread_rwlock_trywrlock(&lock))
                busy++, pthread_rwlock_wrlock(&lock);
            for (int n = 0; n < 32; n++)
                table[n] = table[n] * 3 + (long)me + n;
            note(me + 32);
        } else {
            if (pthread_rwlock_tryrdlock(&lock))
                busy++, pthread_rwlock_rdlock(&lock);
            note((unsigned long)table[i % 32] + me);
        }
        work(60);
        pthread_rwlock_unlock(&lock);
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    in_threads(6, run);
    return outcome((unsigned long)busy);
}
