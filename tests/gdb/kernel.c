// A process that makes system calls and gets signals: one with a handler that calls, too, one
// ignored. The number of the last call comes from memory.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int seen;

static void on_usr1(int number) {
    seen += number;
    getppid();
}

static volatile long number_of_last = SYS_getppid;

int main(void) {
    signal(SIGUSR1, on_usr1);
    signal(SIGUSR2, SIG_IGN);
    getppid();
    syscall(SYS_getuid);
    kill(getpid(), SIGUSR2);
    kill(getpid(), SIGUSR1);
    syscall(number_of_last);
    seen++;
    return seen != 11;
}
