// Rounds of a computation that is the same in each run, with calls on the way. It ends by a signal.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long state = 1;
static unsigned char counts[1 << 16];
static double mean;
static char *line;

__attribute__((noinline)) static void round_of(long number) {
    for (int i = 0; i < 40000; i++) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
        counts[state >> 48]++;
        mean += ((double)(state >> 40) - mean) / 1000;
    }
    free(line);
    line = malloc(64);
    snprintf(line, 64, "round %ld", number);
    if (number % 4 == 0)
        getppid();
}

int main(int argc, char **argv) {
    for (long number = 0; number < atol(argv[1]); number++)
        round_of(number);
    printf("%lx %g %s\n", state, mean, line);
    fflush(stdout);
    abort();
}
