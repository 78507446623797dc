// A pool of threads: which takes which job, and in which order they are done.
#include "order.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static int jobs[1024], next, end, finished, is_over;

static void *run(void *number)
{
    pthread_mutex_lock(&lock);
    for (;;) {
        while (next == end && !is_over)
            pthread_cond_wait(&more, &lock);
        if (next == end)
            break;
        int job = jobs[next++ % 1024];
        pthread_mutex_unlock(&lock);
        unsigned long result = work(100 + job % 7 * 300);
        pthread_mutex_lock(&lock);
        note(result % 1000 * 8 + (unsigned long)number);
        if (job % 5 == 0 && end - next < 900)
            jobs[end++ % 1024] = job + 1, pthread_cond_signal(&more);
        finished++;
        pthread_cond_signal(&done);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static void *submit(void *rounds)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < (long)rounds * 60; i++) {
        jobs[end++ % 1024] = i;
        pthread_cond_signal(&more);
        while (end - finished > 20)
            pthread_cond_wait(&done, &lock);
    }
    is_over = 1;
    pthread_cond_broadcast(&more);
    pthread_mutex_unlock(&lock);
    return 0;
}

int main(int count, char **args)
{
    pthread_t submits;
    pthread_create(&submits, 0, submit, (void *)atol(args[1]));
    in_threads(4, run);
    pthread_join(submits, 0);
    return outcome((unsigned long)finished);
}
