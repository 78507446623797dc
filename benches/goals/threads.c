// Four threads that compute, each with data of its own.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

static void *compute(void *seed) {
    uint64_t x = (uintptr_t)seed, sum = 0;
    for (long i = 0; i < 150000000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        if (x & 64)
            sum += x;
    }
    return (void *)(uintptr_t)sum;
}

int main(void) {
    pthread_t threads[4];
    uint64_t sum = 0;
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, compute, (void *)(i + 1));
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (uintptr_t)result;
    }
    printf("%lu\n", sum);
    return 0;
}
