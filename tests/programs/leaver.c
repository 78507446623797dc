/* A thread that ends with its input, of a process that goes on. */
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

static void *leave(void *argument)
{
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    return argument;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, leave, NULL);
    for (;;)
        pause();
}
