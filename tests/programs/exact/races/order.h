// The outcome of a race: a hash of the order in which threads did something, and what they found.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile unsigned long order;

/* Without a lock: the hash is a race itself. */
static inline void note(unsigned long what)
{
    order = (order ^ what) * 1099511628211ul + 1;
}

/* Work that takes a while. */
static inline unsigned long work(int turns)
{
    volatile unsigned long sum = 1;
    for (int i = 0; i < turns; i++)
        sum = sum * 3 + (unsigned long)i;
    return sum;
}

/* Runs a function in threads with the numbers from 0 on, and waits for them. */
static inline void in_threads(int count, void *(*run)(void *))
{
    pthread_t threads[64];
    for (long i = 0; i < count; i++)
        pthread_create(&threads[i], 0, run, (void *)i);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], 0);
}

static inline int outcome(unsigned long what)
{
    printf("%016lx %lu\n", order, what);
    return 0;
}
