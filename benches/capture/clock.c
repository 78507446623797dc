// Reads the clock again and again: 2 million system calls where there is no vdso.
#include <time.h>

int main(void) {
    struct timespec now;
    long sum = 0;
    for (int i = 0; i < 2000000; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        sum += now.tv_nsec & 1;
    }
    return sum < 0;
}
