#include <stdlib.h>
#include <string.h>

long balance_of_bank = 1000;

struct account {
    long balance;
    char owner[24];
};

static struct account *opened(const char *owner, long balance) {
    struct account *a = malloc(sizeof *a);
    strcpy(a->owner, owner);
    a->balance = balance;
    return a;
}

static void pay(struct account *a, long sum) {
    a->balance -= sum;
}

static void rename_to(struct account *a, char first) {
    a->owner[0] = first;
}

int main(void) {
    struct account *a = opened("grace", 100);
    for (long sum = 10; sum <= 30; sum += 10)
        pay(a, sum);
    pay(a, 0);
    rename_to(a, 'G');
    if (a->balance != 100)
        abort();
    return 0;
}
