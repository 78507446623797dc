// A lock that inherits priorities. Its owner unlocks it by a call as others wait for it: the kernel
// marked it when they began to.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t lock;
static volatile unsigned words[8];

static void *wait_for_it(void *number)
{
    usleep(5000 * (unsigned)(long)number);
    pthread_mutex_lock(&lock);
    words[(long)number] = *(volatile unsigned *)&lock;
    pthread_mutex_unlock(&lock);
    return 0;
}

int main(void)
{
    pthread_mutexattr_t kind;
    pthread_t threads[2];
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&lock, &kind);
    pthread_mutex_lock(&lock);
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, wait_for_it, (void *)(i + 1));
    for (int i = 0; i < 30; i++) {
        usleep(1000);
        words[3 + i % 4] = *(volatile unsigned *)&lock;
    }
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    printf("%d\n", (words[3] & 0x80000000) != 0);
    return 0;
}
