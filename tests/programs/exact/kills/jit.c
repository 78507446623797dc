// Code that is made, changed, moved and thrown away while the program runs: FILE ROUNDS.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned long function(unsigned long);

/* A loop of `turns` rounds over x = (x ^ a) * 3 + b. */
static int make(unsigned char *code, unsigned a, unsigned b, unsigned turns)
{
    unsigned char *at = code;
    *at++ = 0xb9, memcpy(at, &turns, 4), at += 4;                     /* mov ecx, turns */
    *at++ = 0x48, *at++ = 0x89, *at++ = 0xf8;                         /* mov rax, rdi */
    unsigned char *loop = at;
    *at++ = 0x48, *at++ = 0x35, memcpy(at, &a, 4), at += 4;           /* xor rax, a */
    *at++ = 0x48, *at++ = 0x8d, *at++ = 0x04, *at++ = 0x40;           /* lea rax, [rax+2*rax] */
    *at++ = 0x48, *at++ = 0x05, memcpy(at, &b, 4), at += 4;           /* add rax, b */
    *at++ = 0xff, *at++ = 0xc9;                                       /* dec ecx */
    *at++ = 0x75, *at = (unsigned char)(loop - at - 1), at++;         /* jnz loop */
    *at++ = 0xc3;
    return (int)(at - code);
}

int main(int count, char **args)
{
    int rounds = atoi(args[2]);
    unsigned long hash = (unsigned long)getpid();
    const int all = PROT_READ | PROT_WRITE | PROT_EXEC;
    unsigned char *open = mmap(0, 8192, all, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < rounds; i++) {
        /* In place, where it is written and executed. */
        make(open + i % 3 * 64, (unsigned)(i * 7) & 0x7fffffff, (unsigned)i, 20 + (unsigned)i % 50);
        hash = ((function *)(open + i % 3 * 64))(hash);
        /* Code that changes a constant of itself a little later. */
        open[i % 3 * 64 + 10]++;
        hash = ((function *)(open + i % 3 * 64))(hash);
        if (i % 10 == 0) {
            unsigned char *other = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            make(other, (unsigned)hash & 0x7fffffff, 5, 300);
            mprotect(other, 4096, PROT_READ | PROT_EXEC);
            hash = ((function *)other)(hash);
            munmap(other, 4096);
        }
        if (i % 50 == 0)
            hash += (unsigned long)lseek(0, 0, SEEK_CUR) + (unsigned long)getppid();
    }
    return hash & 1;
}
