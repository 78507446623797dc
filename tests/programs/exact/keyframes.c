// Runs long enough for keyframes, with much that they must have: threads in calls and in loops, a
// handler's frame, vector registers, shared memory, memory that was given back, a deep stack, code
// that was written, and a file's mapping that was changed.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static int ends[2];
static volatile long sums[3];
static volatile unsigned long signals;
static long *shared;
static long steps;

static void on_alarm(int signal) {
    signals = signals * 31 + signal;
    for (volatile int i = 0; i < 20000; i++)
        ;
}

static long churn(int who, long rounds) {
    double x = who + 1;
    long sum = 0;
    for (long i = 0; i < rounds; i++) {
        x = x * 1.0000001 + 1e-9;
        sum += (long)(x * 1000) ^ i;
        if (i % 100000 == 0) {
            char *fresh = malloc(3000 + i % 7000);
            memset(fresh, who, 3000);
            sum += fresh[i % 3000];
            free(fresh);
            shared[who] = sum;
        }
        if (i % 500000 == 0)
            sum += getpid() != 0;
    }
    sums[who] = sum;
    return sum;
}

static void *work(void *number) {
    churn((int)(long)number, steps);
    return number;
}

static void *wait_for_byte(void *none) {
    char byte;
    sums[2] = read(ends[0], &byte, 1);
    return none;
}

static long deep(int levels, long rounds) {
    volatile char frame[2000];
    frame[0] = levels;
    long sum = levels ? deep(levels - 1, rounds) : churn(1, rounds);
    return sum + frame[0];
}

static int answer(void) {
    static unsigned char text[] = {0xb8, 42, 0, 0, 0, 0xc3};
    unsigned char *code = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, text, sizeof text);
    return ((int (*)(void))code)();
}

int main(int argc, char **argv) {
    steps = argc > 1 ? atol(argv[1]) : 60000000;
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int self = open(argv[0], O_RDONLY);
    char *file = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, self, 0);
    strcpy(file + 4096, "changed");
    char *given_back = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(given_back, 1, 1 << 20);
    madvise(given_back + 4096, 1 << 19, MADV_DONTNEED);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval period = {{0, 50000}, {0, 50000}};
    setitimer(ITIMER_REAL, &period, 0);
    if (pipe(ends))
        return 1;
    pthread_t threads[2];
    pthread_create(&threads[0], 0, work, 0);
    pthread_create(&threads[1], 0, wait_for_byte, 0);
    deep(100, steps);
    int code = answer();
    if (write(ends[1], "x", 1) != 1)
        return 1;
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
    churn(1, steps);
    setitimer(ITIMER_REAL, &(struct itimerval){}, 0);
    printf("%ld %ld %ld %d %s %d\n", sums[0], sums[1], sums[2], code, file + 4096, given_back[5000]);
    if (!signals)
        return 2;
    *(volatile int *)8 = 1;
}
