// Many system calls in a row, of which a program notices registers, flags, the red zone and memory.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static unsigned long sum;
static struct timespec now;
static char text[256];

static void add(unsigned long value) { sum = sum * 31 + value; }

// RCX after a call, with carry and the direction flag.
static void next(long number, long first, void *second) {
    unsigned long result, next;
    __asm__ volatile("stc\n std\n syscall\n 1: cld\n leaq 1b(%%rip), %%rdx\n subq %%rdx, %%rcx\n"
                     : "=a"(result), "=c"(next)
                     : "0"(number), "D"(first), "S"(second)
                     : "rdx", "r11", "memory");
    add(result > -4096UL ? result : 1);
    add(next);
}

// The flags after a call, and a value in the red zone.
static unsigned long left(long number) {
    unsigned long flags, zone;
    __asm__ volatile("movq $77, -8(%%rsp)\n stc\n std\n syscall\n cld\n movq -8(%%rsp), %1\n mov %%r11, %0\n"
                     : "=&r"(flags), "=&r"(zone)
                     : "a"(number)
                     : "rcx", "r11", "memory");
    return (flags & 0x401) * 1000 + zone;
}

int main(void) {
    int file = open("/proc/self/exe", O_RDONLY);
    struct stat status;
    char *fixed = (char *)"text that nobody writes";
    for (int i = 0; i < 100; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        add(now.tv_nsec > 0);
        add(pread(file, text, 1 + i % 200, i));
        for (int j = 0; j < 256; j++)
            add(text[j]);
        add(pread(file, fixed, 8, 0));
        fstat(file, &status);
        add(status.st_size);
        add(lseek(file, i, SEEK_SET));
        next(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
        add(left(SYS_getppid));
        if (i % 25 == 24)
            printf("%d\n", i);
        // Nothing of it depends on time.
        now.tv_nsec = 0;
    }
    printf("%lu %s\n", sum, fixed);
    return 0;
}
