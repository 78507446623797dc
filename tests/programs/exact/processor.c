// Instructions whose results do not follow from the state of the program.
#include <stdio.h>
#include <stdint.h>
#include <cpuid.h>
#include <immintrin.h>
#include <sched.h>
#define _GNU_SOURCE

__attribute__((target("rdrnd,rdseed,xsave"))) int main() {
    uint64_t t = 0;
    for (int i = 0; i < 1000; i++)
        t ^= __builtin_ia32_rdtsc();
    unsigned a, b, c, d, aux;
    t ^= __builtin_ia32_rdtscp(&aux);
    __cpuid(0, a, b, c, d);
    t ^= a ^ b;
    unsigned long long r;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_RDRND)) {
        _rdrand64_step(&r);
        t ^= r;
    }
    t ^= _xgetbv(0);
    char buf[4096] __attribute__((aligned(64))) = {0};
    _xsave(buf, 7);
    for (int i = 0; i < 600; i++)
        t ^= (uint64_t)buf[i] << (i % 50);
    double x = 1.5;
    __asm__ volatile("fldl %0; fsin; fstpl %0" : "+m"(x));
    char env[108];
    __asm__ volatile("fnstenv %0; fldenv %0" : "+m"(env));
    char fx[512] __attribute__((aligned(16)));
    __asm__ volatile("fxsave %0" : "=m"(fx));
    for (int i = 0; i < 400; i++)
        t += fx[i];
    for (int i = 0; i < 28; i++)
        t += env[i];
    __asm__ volatile("sgdt %0" : "=m"(buf));
    t += buf[0];
    printf("%d\n", t != 0);
    return 0;
}
