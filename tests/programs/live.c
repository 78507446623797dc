// A program to be debugged live: calls, output, a signal, and a crash if it is asked for.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int counter;

static void on_signal(int number) {
    counter += 100 * (number == SIGUSR1);
}

__attribute__((noinline)) int work(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += i * n;
    counter++;
    return sum;
}

int main(int argc, char **argv) {
    int total = 0;
    signal(SIGUSR1, on_signal);
    for (int i = 0; i < 5; i++)
        total += work(i);
    raise(SIGUSR1);
    printf("total %d counter %d\n", total, counter);
    fflush(stdout);
    if (argc > 2)
        execv(argv[2], argv + 2);
    if (argc > 1)
        *(volatile int *)0 = 1;
    return 3;
}
