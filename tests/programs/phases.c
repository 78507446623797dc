/* Branches that go one way for a while, and then the other: what is mostly taken changes. Prints a
   hash of the order in which the functions first, second and third were called. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t hash = 1, state = 1;

static void note(uint64_t number)
{
    hash = hash * 3 + number;
}

__attribute__((noinline)) void first(void) { note(0); }
__attribute__((noinline)) void second(void) { note(1); }
__attribute__((noinline)) void third(void) { note(2); }

static unsigned chance(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33 & 15;
}

static void round_of(int phase)
{
    unsigned often = phase % 2 ? 14 : 2;
    if (chance() < often)
        first();
    else if (chance() < often)
        second();
    for (unsigned i = chance() & 3; i > 0; i--)
        if (chance() >= often)
            third();
}

int main(int argc, char **argv)
{
    int phases = argc > 1 ? atoi(argv[1]) : 4, rounds = argc > 2 ? atoi(argv[2]) : 10000;
    for (int phase = 0; phase < phases; phase++)
        for (int i = 0; i < rounds; i++)
            round_of(phase);
    printf("%llu\n", (unsigned long long)hash);
    return 0;
}
