/* Of several threads, one ends the process where all others wait. */
#include <pthread.h>
#include <unistd.h>

static pthread_barrier_t started;

static void *park(void *argument)
{
    pthread_barrier_wait(&started);
    for (;;)
        pause();
    return argument;
}

__attribute__((noinline)) static void boom(int *nowhere)
{
    *nowhere = 1;
}

static void *crash(void *argument)
{
    pthread_barrier_wait(&started);
    boom(argument);
    return argument;
}

int main(void)
{
    pthread_t thread;
    pthread_barrier_init(&started, NULL, 4);
    pthread_create(&thread, NULL, park, NULL);
    pthread_create(&thread, NULL, crash, NULL);
    pthread_create(&thread, NULL, park, NULL);
    park(NULL);
    return 0;
}
