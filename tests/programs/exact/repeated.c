// A timer interrupts long string instructions.
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/time.h>
static volatile int n;

static void h(int s) {
    n++;
}

int main() {
    signal(SIGALRM, h);
    struct itimerval v = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &v, 0);
    char *a = malloc(8 << 20), *b = malloc(8 << 20);
    unsigned long s = 0;
    for (int i = 0; i < 200 || n < 30; i++) {
        size_t c = 8 << 20;
        void *d = b, *x = a;
        a[i % 1000] = i;
        __asm__ volatile("rep movsb" : "+D"(d), "+S"(x), "+c"(c)::"memory");
        s += b[i % 1000];
        c = 100;
        d = b;
        __asm__ volatile("repne scasb" : "+D"(d), "+c"(c) : "a"(77) : "memory");
        s += c;
    }
    printf("%d\n", s > 0);
    return 0;
}
