// A stack without locks, whose nodes are used again: the ABA fault loses some.
#include "order.h"
#include <stdatomic.h>
struct node {
    struct node *_Atomic next;
    long value;
};
static struct node nodes[16];
static struct node *_Atomic top;
static _Atomic long failed;
static int rounds;

static void push(struct node *node)
{
    struct node *old = atomic_load(&top);
    do
        atomic_store(&node->next, old);
    while (!atomic_compare_exchange_weak(&top, &old, node));
}

static struct node *pop(void)
{
    struct node *old = atomic_load(&top);
    while (old) {
        struct node *next = atomic_load(&old->next);
        if (atomic_compare_exchange_weak(&top, &old, next))
            return old;
        failed++;
    }
    return 0;
}

static void *run(void *number)
{
    for (int i = 0; i < rounds * 1000; i++) {
        struct node *one = pop(), *other = pop();
        if (one) {
            one->value = one->value * 5 + (long)number;
            note((unsigned long)one->value);
            push(one);
        }
        if (other && other != one)
            push(other);
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    for (int i = 0; i < 16; i++)
        push(&nodes[i]);
    in_threads(4, run);
    int left = 0;
    for (struct node *node = top; node && left < 100; node = node->next)
        left++;
    return outcome((unsigned long)(failed * 1000 + left));
}
