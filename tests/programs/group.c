/* Sends a signal to its whole process group, and says how often it came to its handler. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static volatile int came;

static void on_signal(int sig)
{
    (void)sig;
    came++;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int sig = atoi(argv[1]);
    signal(sig, strcmp(argv[2], "ignore") ? on_signal : SIG_IGN);
    kill(0, sig);
    /* A recorder sees these calls: what it has to pass on is here by then. */
    for (int i = 0; i < 10; i++)
        munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    printf("%d came %d times\n", sig, came);
    return 5;
}
