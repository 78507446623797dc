/* Code that is mapped twice: written at one address, executed at the other. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*function)(void);

int main(void)
{
    int file = memfd_create("code", 0);
    if (file < 0 || ftruncate(file, 8192) != 0)
        return 77;
    unsigned char *to_write = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    unsigned char *code = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
    unsigned char template[] = { 0xb8, 0, 0, 0, 0, 0xc3 };      /* mov $0,%eax; ret */
    long sum = 0;
    for (unsigned char i = 1; i <= 5; i++) {
        template[1] = i;
        memcpy(to_write, template, sizeof template);
        template[1] = (unsigned char)(i + 1);
        memcpy(to_write + 4096, template, sizeof template);
        sum = sum * 100 + ((function)code)() * 10 + ((function)(code + 4096))();
    }
    /* a mapping that comes later, of a part */
    munmap(to_write, 8192);
    to_write = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 4096);
    to_write[1] = 9;
    sum = sum * 10 + ((function)(code + 4096))();
    printf("sum %ld\n", sum);
    return 0;
}
