// Fails where one of two short threads is interrupted between a load and a store, which in slices of
// usual length does not happen. Waits for nothing in the meantime.
#include <pthread.h>
#include <stdio.h>

enum { ROUNDS = 300 };
static volatile int sum;

static void *add(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        int seen = sum;
        for (volatile int j = 0; j < 3; j++)
            ;
        sum = seen + 1;
    }
    return unused;
}

int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, add, 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    printf("%d\n", sum);
    return sum != 2 * ROUNDS;
}
