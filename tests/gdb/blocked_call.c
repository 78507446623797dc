// A system call that waits while another thread computes.
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int done;

static void *compute(void *of) {
    while (!done)
        continue;
    return of;
}

int main(void) {
    pthread_t thread;
    struct timespec time = {0, 20000000};
    pthread_create(&thread, NULL, compute, NULL);
    syscall(SYS_nanosleep, &time, NULL);
    done = 1;
    pthread_join(thread, NULL);
    return 0;
}
