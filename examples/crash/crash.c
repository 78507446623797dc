/*
 * A small program with a bug that shows itself far from where it is: `retire`
 * forgets to take an account off the list, and `report` walks into what is
 * left of it. Record it, and walk back from the crash to the culprit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct account {
    struct account *next;
    char *owner;
    long balance;
};

static struct account *accounts;

static struct account *open_account(const char *owner, long balance)
{
    struct account *a = malloc(sizeof *a);
    a->owner = strdup(owner);
    a->balance = balance;
    a->next = accounts;
    accounts = a;
    return a;
}

static void retire(struct account *a)
{
    free(a->owner);
    a->owner = NULL;            /* the bug: `a` stays on the list */
}

static long total(void)
{
    long sum = 0;
    for (struct account *a = accounts; a; a = a->next)
        sum += a->balance;
    return sum;
}

static size_t longest_name(void)
{
    size_t longest = 0;
    for (struct account *a = accounts; a; a = a->next) {
        size_t length = 0;
        while (a->owner[length])
            length++;
        if (length > longest)
            longest = length;
    }
    return longest;
}

static void report(void)
{
    size_t width = longest_name();
    for (struct account *a = accounts; a; a = a->next)
        printf("%-*s %6ld\n", (int)width, a->owner, a->balance);
    printf("total %ld\n", total());
}

int main(void)
{
    open_account("ada", 1200);
    struct account *b = open_account("barbara", 50);
    open_account("grace", 7);
    report();
    retire(b);
    report();
    return 0;
}
