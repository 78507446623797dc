// Threads that compute by x87, and stay in the midst of it until the end. A processor has the address of the
// last x87 instruction, which is not the program's in a code cache.
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 20000 };

static volatile long double sums[THREADS];
static volatile int ready;
static volatile unsigned environments;

static void on_signal(int signal) {
    (void)signal;
    fenv_t environment;
    fegetenv(&environment);
    environments += environment.__control_word;
}

static void *work(void *arg) {
    long index = (long)arg;
    for (int i = 1; i <= ROUNDS; i++) {
        sums[index] = fmodl(sums[index] * 1.01L + i, 1000.5L);
        if (i % 5000 == 0)
            raise(SIGUSR1);
    }
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    for (;;)
        pause();
}

int main(void) {
    signal(SIGUSR1, on_signal);
    for (long i = 0; i < THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, (void *)i);
    }
    while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < THREADS)
        usleep(1000);
    printf("%.6Lf %.6Lf %u\n", sums[0], sums[1], environments);
    fflush(stdout);
    _exit(0);
}
