// Signal handlers amid computations in vector registers.
#include <stdio.h>
#include <string.h>
#include <signal.h>
#include <sys/time.h>
#include <immintrin.h>
static volatile int n;
static double v[64];

static void h(int s) {
    for (int i = 0; i < 64; i++)
        v[i] += 1;
    n++;
}

__attribute__((target("avx2,fma"))) int main() {
    if (!__builtin_cpu_supports("avx2"))
        return 0;
    signal(SIGALRM, h);
    struct itimerval t = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &t, 0);
    __m256d a = _mm256_set1_pd(1.0), b = _mm256_set1_pd(1e-9);
    // At least once: on a busy machine, fifty signals may come before this.
    do {
        for (int i = 0; i < 1000; i++)
            a = _mm256_fmadd_pd(a, b, a);
    } while (n < 50);
    double o[4];
    _mm256_storeu_pd(o, a);
    printf("%d\n", o[0] > 1);
    return 0;
}
