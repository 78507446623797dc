// A thread that makes processes, beside one that passes two lines again and again.

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int over;

static void *make(void *unused) {
    while (!over) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    }
    return unused;
}

__attribute__((noinline)) static void rest(void) {
    for (int i = 0; i < 50; i++)
        sched_yield();
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, make, NULL);
    for (int lap = 0; lap < 40; lap++) {
        rest(); // one
        rest(); // two
    }
    over = 1;
    pthread_join(thread, NULL);
    return 0;
}
