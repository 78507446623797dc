// A signal in whose place the debugger gives one that does nothing.
#include <signal.h>
#include <unistd.h>

static volatile int handled, reached;

static void on_signal(int number) {
    handled = number;
}

__attribute__((noinline)) static void reach(void) {
    reached++;
}

int main(void) {
    signal(SIGUSR1, on_signal);
    kill(getpid(), SIGUSR1);
    reach();
    kill(getpid(), SIGUSR1);
    reach();
    return 0;
}
