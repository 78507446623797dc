// Computes for a while, and prints what it got. Its process number comes first.
#include <stdio.h>
#include <unistd.h>

int main(void) {
    printf("%d\n", getpid());
    fflush(stdout);
    unsigned long a = 1, b = 2, c = 3, d = 4;
    for (long i = 0; i < 300000000; i++) {
        a = a * 6364136223846793005 + b;
        if (a & 4096)
            b ^= a >> 7;
        else
            c += d;
        d = d * 3 + (c & 1);
    }
    printf("%lx %lx %lx %lx\n", a, b, c, d);
    return 0;
}
