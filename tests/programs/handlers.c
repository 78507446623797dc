// Two threads that each get a signal while all stand still, a line that sends itself one, and a
// function without a result.

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int first, second, third, called, released;
static pthread_barrier_t ready_all;

static void on_first(int number) { first += number == SIGUSR1; }
static void on_second(int number) { second += number == SIGUSR2; }
static void on_third(int number) { third += number == SIGALRM; }

__attribute__((noinline)) void ready(void) { called += 0; }
__attribute__((noinline)) void done(void) { called += 0; }
__attribute__((used, noinline)) static void call_me(int n) { called += n; }

static void *wait_there(void *unused) {
    pthread_barrier_wait(&ready_all);
    while (!released)
        sched_yield();
    return unused;
}

// The handler runs before the next line.
static void send_alarm(void) {
    long result = SYS_tgkill;
    __asm__ volatile("syscall" : "+a"(result) : "D"(getpid()), "S"(gettid()), "d"(SIGALRM) : "rcx", "r11", "memory");
    called += 0; // after the alarm
}

int main(void) {
    pthread_t threads[2];
    signal(SIGUSR1, on_first);
    signal(SIGUSR2, on_second);
    signal(SIGALRM, on_third);
    pthread_barrier_init(&ready_all, NULL, 3);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, wait_there, NULL);
    pthread_barrier_wait(&ready_all);
    ready();
    released = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    done();
    send_alarm();
    printf("%d %d %d %d\n", first, second, third, called);
    return 0;
}
