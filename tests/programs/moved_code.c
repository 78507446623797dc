/* Moves code by mremap(2), runs it where it is then, and changes it there: over code that was
   executed, back and forth, grown, in two places, and from the private pages of a file. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define PLACE ((unsigned char *)0x600000000000)
#define PAGE 4096
#define LARGE (1 << 20)

static const int all = PROT_READ | PROT_WRITE | PROT_EXEC;
static const int fixed = MREMAP_MAYMOVE | MREMAP_FIXED;

/* Writes a function that returns a value: MOV EAX, value; RET. */
static void emit(unsigned char *at, int value)
{
    at[0] = 0xb8;
    memcpy(at + 1, &value, 4);
    at[5] = 0xc3;
}

static void run(void *at)
{
    printf(" %d", ((int (*)(void))at)());
}

static void *map(void *at, int protection, int flags, int fd)
{
    int place = at ? MAP_FIXED : 0;
    return mmap(at, PAGE, protection, flags | place, fd, 0);
}

int main(void)
{
    int own = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *here = map(PLACE, all, own, -1), *there = map(PLACE + PAGE, all, own, -1);
    emit(here, 1);
    emit(there, 2);
    run(here);
    run(there);
    for (int i = 10; i < 20; i++) {
        unsigned char *to = i % 2 ? PLACE : PLACE + PAGE;
        here = mremap(here, PAGE, PAGE, fixed, to);
        run(here);
        emit(here, i);
        run(here);
    }
    here = mremap(here, PAGE, LARGE, fixed, PLACE + LARGE);
    run(here);
    emit(here, 30);
    emit(here + LARGE / 2, 31);
    run(here);
    run(here + LARGE / 2);
    emit(here + LARGE / 2, 32);
    run(here + LARGE / 2);

    unsigned char *copy = mremap(here, LARGE, LARGE, fixed | MREMAP_DONTUNMAP, PLACE + 2 * LARGE);
    if (copy != MAP_FAILED) {
        run(copy);
        emit(copy, 40);
        emit(here, 41);
        run(copy);
        run(here);
        emit(here, 42);
        run(here);
    }

    unsigned char *shared = map(NULL, all, MAP_SHARED | MAP_ANONYMOUS, -1);
    emit(shared, 50);
    run(shared);
    unsigned char *alias = mremap(shared, 0, PAGE, fixed, PLACE);
    run(alias);
    emit(shared, 51);
    run(alias);
    emit(alias, 52);
    run(shared);

    int program = open("/proc/self/exe", O_RDONLY);
    unsigned char *file = map(NULL, PROT_READ | PROT_WRITE, MAP_PRIVATE, program);
    emit(file, 60);
    mprotect(file, PAGE, PROT_READ | PROT_EXEC);
    run(file);
    file = mremap(file, PAGE, PAGE, fixed, PLACE + PAGE);
    run(file);
    file = map(NULL, PROT_READ | PROT_WRITE, MAP_PRIVATE, program);
    emit(file, 61);
    file = mremap(file, PAGE, PAGE, fixed, PLACE);
    mprotect(file, PAGE, PROT_READ | PROT_EXEC);
    run(file);
    puts("");
    return 0;
}
