/* Adds prices with a discount. Arguments: the limit, the number of items, how often two threads count;
   with a fourth one, an item throws the sum away by longjmp. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef BEYOND
#define BEYOND >
#endif

struct item {
    int id;
    long price;
};

static struct item items[8];
static jmp_buf out;

static long discount(struct item *it, long limit)
{
    if (it->price BEYOND limit)
        return it->price / 10;
    return 0;
}

static long total(int n, long limit, int thrown)
{
    long sum = 0;
    for (int i = 0; i < n; i++) {
        if (i == thrown)
            longjmp(out, 1);
        sum += items[i].price - discount(&items[i], limit);
    }
    return sum;
}

static void *count(void *rounds)
{
    volatile long counted = 0;
    while (counted < *(long *)rounds)
        counted++;
    return NULL;
}

int main(int argc, char **argv)
{
    long limit = atol(argv[1]), rounds = atol(argv[3]);
    int n = atoi(argv[2]), thrown = argc > 4 ? atoi(argv[4]) : -1;
    for (int i = 0; i < 8; i++)
        items[i] = (struct item){i, 20 * i};
    long sum = -1;
    if (setjmp(out) == 0)
        sum = total(n, limit, thrown);
    pthread_t thread;
    pthread_create(&thread, NULL, count, &rounds);
    pthread_join(thread, NULL);
    printf("%ld\n", sum);
    return 0;
}
