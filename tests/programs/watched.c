// Seven places that are written one after the other, the last by a thread that the first waits for.

#include <pthread.h>
#include <stdio.h>

static volatile int a, b, c, d, e, f, total, other, more, yet, last;
static volatile int table[20];

__attribute__((noinline)) static void *fill(void *p) {
    table[2] = 5;
    table[3] = 6;
    return p;
}

int main(void) {
    pthread_t thread;
    a = 1;
    b = 2;
    c = 3;
    d = 4;
    e = 5;
    f = 6;
    pthread_create(&thread, NULL, fill, NULL);
    pthread_join(thread, NULL);
    printf("done %d\n", table[3] + total + other + more + yet + last);
    return 0;
}
