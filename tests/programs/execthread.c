/* A thread that is not the first becomes another program. */
#include <pthread.h>
#include <unistd.h>

static void *worker(void *unused)
{
    (void)unused;
    execl("/bin/echo", "echo", "executed", (char *)NULL);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, worker, NULL);
    pause();
    return 1;
}
