// Loops that are one line of source: a debugger steps them within one range of code.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile long sum, other, signals, watched;
static long (*volatile chosen)(long);

static long twice(long number) { return 2 * number; }

static void handler(int number) { signals += number > 0; }

static pthread_t first;

static void *interrupt(void *unused)
{
    pthread_kill(first, SIGUSR1);
    return unused;
}

static void *work(void *unused)
{
    for (long i = 0; i < 60000; i++) other += i & 3;
    return unused;
}

int main(void)
{
    pthread_t thread;
    chosen = twice;
    signal(SIGUSR1, handler);
    pthread_create(&thread, NULL, work, NULL);
    for (long i = 0; i < 100000; i++) sum += i % 7 == 3 ? i : 1;
    sum += 1;
    for (long i = 0; i < 1000; i++) if (i == 700) watched = i; else sum += i;
    sum += 2;
    for (long i = 0; i < 50; i++) sum += chosen(i);
    sum += 3;
    for (long i = 0; i < 500; i++) if (i == 400) raise(SIGUSR1); else sum += i;
    sum += 4;
    pthread_join(thread, NULL);
    printf("%ld %ld %ld\n", sum, other, signals);
    // It depends on time how often this loop goes round.
    first = pthread_self();
    pthread_create(&thread, NULL, interrupt, NULL);
    while (signals < 2) sum += 1;
    sum += 5;
    pthread_join(thread, NULL);
    return 0;
}
