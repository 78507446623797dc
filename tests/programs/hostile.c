/* Harms whoever records it, by the memory that the two share, which it finds in /proc/self/maps, or
   in its maps as a child sees them.
     calls      tries to change the mappings by all calls that could, and prints what succeeded
     guards     stores into the pages that end trace buffers, with R11 as a trace pointer would be
     child N    a child in the same memory, which nobody records, unmaps the Nth mapping
     area N S   a thread writes random bytes to the Nth that can be written, others work; seed S
     area N S endless   the same until somebody ends it */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct mapping {
    unsigned long start, end;
    char access[5];
};

static struct mapping found[256];
static int count;

static void find_in(FILE *maps, const char *access)
{
    char line[4096];
    while (count < 256 && fgets(line, sizeof line, maps)) {
        struct mapping *at = &found[count];
        int known = sscanf(line, "%lx-%lx %4s", &at->start, &at->end, at->access);
        if (known == 3 && strstr(line, "contraflow") && strstr(at->access, access))
            count++;
    }
}

static void find(const char *access)
{
    count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    find_in(maps, access);
    fclose(maps);
    if (count)
        return;
    char command[64];
    snprintf(command, sizeof command, "cat /proc/%d/maps", getpid());
    maps = popen(command, "r");
    find_in(maps, access);
    pclose(maps);
}

static int succeeded;

static void check(const char *call, long result)
{
    if (result != -1) {
        printf("%s succeeded\n", call);
        succeeded++;
    }
}

static int in_child(void *at)
{
    struct mapping *mapping = at;
    int all = PROT_READ | PROT_WRITE | PROT_EXEC;
    /* What it may write already is its own to spoil, and what is not mapped yet. */
    if (strchr(mapping->access, 'r') && !strchr(mapping->access, 'w'))
        return mprotect((void *)mapping->start, 0x1000, all) == 0;
    return 0;
}

static int unmaps(void *at)
{
    struct mapping *mapping = at;
    return munmap((void *)mapping->start, mapping->end - mapping->start);
}

static char stack[65536] __attribute__((aligned(16)));

/* What a child says that shares this memory. */
static int child(int (*act)(void *), struct mapping *at)
{
    int status = 0;
    pid_t pid = clone(act, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, at);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void calls(void)
{
    int all = PROT_READ | PROT_WRITE | PROT_EXEC;
    int fixed = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
    char *own = mmap(NULL, 0x2000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    find("");
    for (int i = 0; i < count; i++) {
        char *start = (char *)found[i].start;
        size_t size = found[i].end - found[i].start;
        check("mprotect", mprotect(start, 0x1000, all));
        check("mprotect of what is before", mprotect(start - 0x1000, 0x2000, all));
        check("pkey_mprotect", syscall(SYS_pkey_mprotect, start, size, all, -1));
        check("munmap", munmap(start + size - 0x1000, 0x1000));
        check("mmap", (long)mmap(start, 0x1000, all, fixed, -1, 0));
        check("mremap", (long)mremap(start, 0x1000, 0x2000, MREMAP_MAYMOVE));
        check("mremap of nothing", (long)mremap(start, 0, 0x1000, MREMAP_MAYMOVE));
        check("mremap to it", (long)mremap(own, 0x1000, 0x1000, MREMAP_MAYMOVE | MREMAP_FIXED, start));
        check("remap_file_pages", syscall(SYS_remap_file_pages, start, 0x1000, 0, 1, 0));
        check("madvise", madvise(start, 0x1000, MADV_REMOVE));
        check("a child's mprotect", child(in_child, &found[i]) == 1 ? 0 : -1);
        char path[128];
        snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", found[i].start, found[i].end);
        int file = open(path, O_RDWR);
        if (file >= 0) {
            check("ftruncate", ftruncate(file, 0));
            check("pwrite", pwrite(file, "", 1, 0));
            close(file);
        }
    }
    printf("%d succeeded of %d mappings\n", succeeded, count > 3);
}

static volatile int stored;
static sigjmp_buf before;

static void handler(int signal)
{
    (void)signal;
    siglongjmp(before, 1);
}

/* Whether a store at an address is done, with R11 as it is said. */
static int stores(unsigned long r11, unsigned long at)
{
    if (sigsetjmp(before, 1))
        return 0;
    __asm__ volatile("mov %0, %%r11\n\tmovl $1, (%1)\n\tmov %%r11, %%rax"
                     : : "r"(r11), "r"(at) : "r11", "rax", "memory");
    return 1;
}

static void guards(void)
{
    int tried = 0;
    signal(SIGSEGV, handler);
    find("---");
    for (int i = 0; i < count; i++) {
        unsigned long at = found[i].start;
        unsigned long pointers[] = {0, at, at - 4, at + 8, ~0UL};
        for (int k = 0; k < 5 && found[i].end - at == 0x1000; k++) {
            stored += stores(pointers[k], at);
            tried++;
        }
    }
    printf("%d stored of %d\n", stored, tried);
}

static uint64_t seed;

static uint64_t random_word(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 17 ^ seed << 23;
}

static void *scribble(void *at)
{
    struct mapping *mapping = at;
    uint64_t words = (mapping->end - mapping->start) / 8;
    /* Most of what is used is at the beginning. */
    uint64_t spread = words < 512 ? words : random_word() % 2 ? 512 : words;
    for (;;) {
        volatile uint64_t *to = (uint64_t *)mapping->start + random_word() % spread;
        volatile uint64_t *from = (uint64_t *)mapping->start + random_word() % spread;
        switch (random_word() % 5) {
        case 0:
            *to = random_word();
            break;
        case 1:
            *to = *from;
            break;
        case 2:
            *to = random_word() % 1000 << 32 | random_word() % 1000;
            break;
        case 3:
            *(volatile uint8_t *)to ^= 1 << random_word() % 8;
            break;
        default:
            *to = mapping->start + random_word() % (words * 8);
        }
        if (random_word() % 64 == 0)
            sched_yield();
    }
    return NULL;
}

__attribute__((noinline)) static int work(int n)
{
    return n < 2 ? n : work(n - 1) + work(n - 2);
}

static void *short_life(void *none)
{
    return none;
}

static void noted(int signal)
{
    (void)signal;
    stored++;
}

static void area(int number, int is_endless)
{
    pthread_t thread;
    char *own = mmap(NULL, 0x1000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGUSR1, noted);
    /* Whatever becomes of this program, it ends. */
    if (!is_endless)
        alarm(20);
    find("rw");
    pthread_create(&thread, NULL, scribble, &found[number % count]);
    printf("scribbling\n");
    fflush(stdout);
    for (int i = 0; is_endless || i < 200; i++) {
        work(12);
        getppid();
        mprotect(own, 0x1000, i & 1 ? PROT_READ : PROT_READ | PROT_WRITE);
        if (i % 8 == 0)
            raise(SIGUSR1);
        if (i % 32 == 0) {
            pthread_t other;
            if (pthread_create(&other, NULL, short_life, NULL) == 0)
                pthread_join(other, NULL);
        }
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int number = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(what, "calls")) {
        calls();
    } else if (!strcmp(what, "guards")) {
        guards();
    } else if (!strcmp(what, "child")) {
        find("");
        if (number < count)
            child(unmaps, &found[number]);
        printf("unmapped\n");
        for (int i = 0; i < 200; i++) {
            work(15);
            getppid();
        }
    } else if (!strcmp(what, "area")) {
        seed = strtoul(argv[3], NULL, 0);
        area(number, argc > 4);
    }
    return 0;
}
