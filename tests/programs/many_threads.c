/* Makes threads one after the other, so many as it is told. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *count(void *counter)
{
    ++*(int *)counter;
    return NULL;
}

int main(int argc, char **argv)
{
    int counter = 0, wanted = argc > 1 ? atoi(argv[1]) : 1;
    for (int i = 0; i < wanted; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, count, &counter) == 0)
            pthread_join(thread, NULL);
    }
    printf("%d threads\n", counter);
    return 0;
}
