/* Three threads that never block: they hand over by spinning, so that a debugger can step them in
 * turns. */
#include <pthread.h>

static volatile int go;
static volatile int done[2];
static volatile int shared;

static int work(int n)
{
    int result = n * 2;
    shared = result;
    return result;
}

static void *worker(void *argument)
{
    int number = (int)(long)argument;
    while (!go)
        ;
    for (int i = 0; i < 3; i++)
        work(number + i);
    done[number] = 1;
    for (;;)
        ;
}

void history_end(void)
{
}

int main(void)
{
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, worker, (void *)i);
    go = 1;
    while (!done[0] || !done[1])
        ;
    work(100);
    history_end();
    return 0;
}
