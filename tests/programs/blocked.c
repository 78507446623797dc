/* SIGTRAP and SIGSEGV are blocked, ignored and caught, while code runs for the first time and
   much is recorded. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile int traps, faults;

static void on_signal(int number)
{
    if (number == SIGTRAP)
        traps++;
    else
        faults++;
}

static int by_byte(const void *a, const void *b)
{
    return *(const char *)a - *(const char *)b;
}

static unsigned long work(void)
{
    unsigned long sum = 1;
    for (int i = 0; i < 400000; i++)
        sum = sum * 6364136223846793005u + (sum & 64 ? 3 : 1);
    return sum & 255;
}

static int blocked(int number)
{
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    return sigismember(&set, number);
}

static void *thread(void *text)
{
    printf("thread: %d %d, %lu\n", blocked(SIGTRAP), blocked(SIGSEGV), work());
    qsort(text, strlen(text), 1, by_byte);
    printf("thread: %d %d, %s\n", blocked(SIGTRAP), blocked(SIGSEGV), (char *)text);
    return NULL;
}

int main(void)
{
    struct sigaction action = { .sa_handler = on_signal }, old;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    sigaction(SIGTRAP, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigprocmask(SIG_SETMASK, &all, NULL);
    printf("%g %lu\n", strtod("1.5e3", NULL), work());
    char text[] = "recorder";
    pthread_t id;
    pthread_create(&id, NULL, thread, text);
    pthread_join(id, NULL);
    printf("blocked %d %d\n", blocked(SIGTRAP), blocked(SIGSEGV));
    sigaction(SIGTRAP, NULL, &old);
    printf("caught %d", old.sa_handler == on_signal);
    sigaction(SIGSEGV, NULL, &old);
    printf(" %d\n", old.sa_handler == on_signal);
    raise(SIGTRAP);
    raise(SIGSEGV);
    printf("%d %d, %ld\n", traps, faults, strtol("-17", NULL, 10));
    sigprocmask(SIG_SETMASK, &none, NULL);
    printf("%d %d, blocked %d %d\n", traps, faults, blocked(SIGTRAP), blocked(SIGSEGV));
    signal(SIGTRAP, SIG_IGN);
    signal(SIGSEGV, SIG_IGN);
    printf("%s %lu\n", strrchr("new/code", '/'), work());
    raise(SIGTRAP);
    raise(SIGSEGV);
    printf("ignored %d %d\n", signal(SIGTRAP, SIG_DFL) == SIG_IGN, signal(SIGSEGV, SIG_DFL) == SIG_IGN);
    printf("%d %d\n", traps, faults);
    return 0;
}
