// Threads that wait for their turns in the kernel, so that each run is the same.
#include <pthread.h>
#include <unistd.h>

static int turns[3][2]; static char token;
static volatile int n;

__attribute__((noinline)) static void work(long self) {
    n += (int)self;
    n++;
}

__attribute__((noinline)) static void pass(long self) {
    (void)!write(turns[(self + 1) % 3][1], "", 1);
}

static void *run(void *argument) {
    long self = (long)argument;
    for (int i = 0; i < 3; i++) {
        while (read(turns[self][0], &token, 1) != 1)
            ;
        work(self);
        pass(self);
    }
    return 0;
}

__attribute__((noinline)) static void done(void) {
    n = 0;
}

int main(void) {
    pthread_t other[2];
    for (int i = 0; i < 3; i++)
        (void)!pipe(turns[i]);
    pass(2);
    pthread_create(&other[0], 0, run, (void *)1);
    pthread_create(&other[1], 0, run, (void *)2);
    run((void *)0);
    pthread_join(other[0], 0);
    pthread_join(other[1], 0);
    // After this call the time is known, so the others have ended at `done`.
    getppid();
    done();
    return 0;
}
