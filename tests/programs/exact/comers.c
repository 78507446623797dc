// Threads that come and go, one after the other, beside one that stays.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned long sum;

static void *come(void *number) {
    unsigned long own = (long)number;
    for (int i = 0; i < 400000; i++)
        own = own * 6364136223846793005UL + 1442695040888963407UL;
    sum += own;
    return number;
}

static void *stay(void *none) {
    static int ends[2];
    (void)pthread_self();
    while (!ends[0])
        pthread_testcancel(), ends[1]++;
    return none;
}

int main(int argc, char **argv) {
    pthread_t staying, coming;
    pthread_create(&staying, 0, stay, 0);
    for (long number = 0; number < atol(argv[1]); number++) {
        pthread_create(&coming, 0, come, (void *)number);
        pthread_join(coming, 0);
    }
    pthread_cancel(staying);
    pthread_join(staying, 0);
    printf("%lx\n", sum);
    return 0;
}
