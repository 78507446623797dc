// Signals that bring a value along.

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((used, noinline)) static int twice(int n) { return 2 * n; }

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)context;
    printf("%d %d %d\n", number == SIGUSR1, info->si_code == SI_QUEUE, info->si_value.sival_int);
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 3; i++)
        sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 4711 + i});
    return twice(0);
}
