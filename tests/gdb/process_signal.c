// A process that sends signals to itself: one with a handler, one ignored, one with a handler that
// sends the next.
#include <signal.h>
#include <unistd.h>

static volatile int seen;

static void on_usr2(int number) {
    seen += number;
}

static void on_usr1(int number) {
    seen += number;
    kill(getpid(), SIGUSR2);
    seen++;
}

int main(void) {
    signal(SIGUSR1, on_usr1);
    signal(SIGUSR2, on_usr2);
    signal(SIGHUP, SIG_IGN);
    kill(getpid(), SIGHUP);
    kill(getpid(), SIGUSR1);
    seen++;
    return seen != 24;
}
