/* Three threads that go on for ever. */
#include <pthread.h>
#include <stddef.h>

static volatile unsigned long counts[3];

static void *count(void *argument)
{
    volatile unsigned long *mine = argument;
    for (;;)
        if (++*mine % 3 == 0)
            ++*mine;
    return NULL;
}

int main(void)
{
    pthread_t thread;
    for (int i = 1; i < 3; i++)
        pthread_create(&thread, NULL, count, (void *)&counts[i]);
    count((void *)&counts[0]);
    return 0;
}
