// Forbids that it is looked into, and goes on: signals, threads and new code as before.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

static volatile int handled;

static void handle(int signal) {
    handled += signal;
}

static void *work(void *unused) {
    raise(SIGUSR1);
    return unused;
}

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

int main(void) {
    pthread_t thread;
    int numbers[] = {5, 3, 9, 1};
    signal(SIGUSR1, handle);
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        return 1;
    qsort(numbers, 4, sizeof numbers[0], compare);
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    printf("%d %d %d\n", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), handled, numbers[3]);
    return 5;
}
