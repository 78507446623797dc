// Threads that share a sum, for sanitizers to look at.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int sum;

static void *work(void *unused) {
    int *numbers = malloc(100 * sizeof *numbers);
    for (int i = 0; i < 100; i++)
        numbers[i] = i;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < 100; i++)
        sum += numbers[i];
    pthread_mutex_unlock(&mutex);
    free(numbers);
    return unused;
}

int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("%d\n", sum);
    return 4;
}
