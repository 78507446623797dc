// Memory that is mapped, moved, cut, protected and forgotten.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <fcntl.h>
#include <errno.h>

static unsigned long sum(void *p, size_t n) {
    unsigned long s = 0;
    for (size_t i = 0; i < n; i++)
        s = s * 31 + ((unsigned char *)p)[i];
    return s;
}

int main() {
    char *p = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 1, 1 << 20);
    p = mremap(p, 1 << 20, 4 << 20, MREMAP_MAYMOVE);
    p[3 << 20] = 7;
    printf("%lx\n", sum(p, 4 << 20));
    p = mremap(p, 4 << 20, 8192, 0);
    printf("%lx\n", sum(p, 8192));
    char *q = mmap(0, 8 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 8; i++)
        q[i << 12] = i + 1;
    madvise(q + (2 << 12), 2 << 12, MADV_DONTNEED);
    munmap(q + (5 << 12), 4096);
    mprotect(q, 4096, PROT_READ);
    for (int i = 0; i < 8; i++)
        if (i != 5)
            printf("%d ", q[i << 12]);
    puts("");
    char *d = mmap(q + (1 << 12), 4096, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("%d\n", d[0]);
    char *e = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(e, 3, 1 << 16);
    char *e2 = mremap(e, 1 << 15, 1 << 15, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    if (e2 != MAP_FAILED) {
        e[0] = 9;
        printf("%lx %lx\n", sum(e2, 1 << 15), sum(e, 1 << 16));
    }
    // Nothing is there, as far as the program knows.
    char *nothing = (char *)0x7e9000001000;
    errno = 0;
    printf("%d ", mremap(nothing, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED ? errno : 0);
    printf("%d\n", mprotect(nothing, 4096, PROT_READ) ? errno : 0);
    void *b = sbrk(0);
    sbrk(1 << 16);
    memset(b, 5, 1 << 16);
    sbrk(-(1 << 15));
    sbrk(1 << 15);
    printf("%lx\n", sum(b, 1 << 16));
    for (int i = 0; i < 50; i++) {
        void *x = malloc(200000 + i * 1000);
        memset(x, i, 200000);
        free(x);
    }
    int fd = open("/proc/self/exe", O_RDONLY);
    char *f = mmap(0, 4096 * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    f[1] = 'x';
    printf("%c%c%c\n", f[1], f[2], f[3]);
    madvise(f, 4096, MADV_DONTNEED);
    printf("%c\n", f[1]);
    char *hp = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(hp, 4 << 20, MADV_HUGEPAGE);
    memset(hp, 1, 4 << 20);
    madvise(hp, 1 << 20, 8);
    printf("%d\n", hp[3 << 20]);
    unsigned char vec[16];
    mincore(hp, 4096 * 16, vec);
    char *g = mmap(0, 16 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN,
                   -1, 0);
    if (g != MAP_FAILED)
        g[0] = 1;
    printf("%d\n", mprotect(p, 1 << 30, PROT_READ) < 0);
    printf("%d\n", p[0]);
    munmap(p - 4096, 4096);
    mlock(e, 4096);
    munlock(e, 4096);
    int z = open("/dev/zero", O_RDWR);
    char *zz = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, z, 0);
    zz[1] = 4;
    printf("%d %d\n", zz[0], zz[1]);
    return 0;
}
