// Threads that end while others begin: destructors of their data, cancellation, detached ones.
#include "order.h"
#include <stdatomic.h>
static pthread_key_t key, last;
static __thread unsigned long own[40];
static _Atomic long ended, cancelled;

static void destroy(void *value)
{
    note((unsigned long)value);
    work(150);
    if ((long)value % 3 == 1)
        pthread_setspecific(last, value);
    ended++;
}

static void cleanup(void *value)
{
    cancelled++;
    note((unsigned long)value + 300);
}

static void *run(void *number)
{
    long me = (long)number;
    pthread_setspecific(key, (void *)(me + 1));
    for (int i = 0; i < 40; i++)
        own[i] = order + (unsigned long)i;
    note(own[me % 40]);
    pthread_cleanup_push(cleanup, number);
    if (me % 4 == 3)
        for (;;)
            usleep(100);
    work(400);
    pthread_cleanup_pop(0);
    return 0;
}

int main(int count, char **args)
{
    int rounds = atoi(args[1]);
    pthread_key_create(&key, destroy);
    pthread_key_create(&last, destroy);
    long wanted = 0;
    for (int i = 0; i < rounds * 3; i++) {
        pthread_t threads[8];
        for (long n = 0; n < 8; n++) {
            pthread_create(&threads[n], 0, run, (void *)n);
            wanted += 1 + ((n + 1) % 3 == 1);
        }
        for (int n = 0; n < 8; n++) {
            if (n % 4 == 3)
                pthread_cancel(threads[n]);
            if (n % 4 == 2)
                pthread_detach(threads[n]);
            else
                pthread_join(threads[n], 0);
        }
    }
    for (int i = 0; ended < wanted && i < 1000; i++)
        usleep(200);
    return outcome((unsigned long)(ended * 100 + cancelled));
}
