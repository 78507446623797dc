/* A thread that ends, of a process that goes on for ever. */
#include <pthread.h>
#include <stddef.h>

static volatile unsigned long count;

static void *work(void *argument)
{
    ++count; /* at work */
    return argument;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    for (;;)
        ++count;
}
