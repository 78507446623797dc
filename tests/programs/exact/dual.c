// Makes code in memory that is mapped twice, once to write and once to execute, as BEAM and .NET do. A
// child has the memory too: it executes another program at once, or stays, or stays for a while.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1 << 20, SLOTS = 7, SLOT = 64, DATA = SIZE - 8192, WORDS = 100, LARGE = 400000 };

static uint8_t *writable;
static uint8_t *executable;
static uint64_t sum;

// Writes a function and calls it, and uses data beside it.
static void round_of(uint32_t i) {
    uint8_t code[] = {0xb8, 0, 0, 0, 0, 0xc3}; // mov eax, i; ret
    memcpy(code + 1, &i, 4);
    uint32_t slot = SLOT * (i % SLOTS);
    memcpy(writable + slot, code, sizeof code);
    uint32_t result = ((uint32_t(*)(void))(executable + slot))();
    if (result != i) {
        printf("code of round %u gave %u\n", i, result);
        exit(1);
    }
    uint32_t *data = (uint32_t *)(writable + DATA);
    data[i % WORDS] += i;
    sum = sum * 31 + result + data[(i * 7) % WORDS];
}

static volatile sig_atomic_t ticks;

static void tick(int signal) {
    (void)signal;
    ticks++;
}

// Fills and copies with repeated instructions, over the code and behind it, while signals come.
static void copies(void) {
    static uint8_t from[LARGE];
    uint8_t *to = writable + SLOT;
    for (int i = 0; i < LARGE; i++) from[i] = i * 7;
    void *at = to, *source = from;
    uint64_t bytes = LARGE, words = LARGE / 8;
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(source), "+c"(bytes) : : "memory");
    at = to + LARGE;
    __asm__ volatile("rep stosq" : "+D"(at), "+c"(words) : "a"(0x1122334455667788) : "memory");
    for (int i = 0; i < 2 * LARGE; i += 997) sum = sum * 31 + to[i];
}

int main(int count, char **args) {
    const char *child = count > 1 ? args[1] : "none";
    uint32_t rounds = count > 2 ? atoi(args[2]) : 40;
    int fd = memfd_create("code", MFD_CLOEXEC);
    ftruncate(fd, SIZE);
    writable = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    executable = mmap(0, SIZE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    close(fd);
    struct itimerval often = {{0, 3000}, {0, 3000}};
    signal(SIGALRM, tick);
    setitimer(ITIMER_REAL, &often, 0);
    round_of(rounds);
    int ends[2];
    pipe(ends);
    pid_t pid = strcmp(child, "none") ? fork() : -1;
    if (pid == 0 && !strcmp(child, "executes")) {
        execl("/bin/true", "true", (char *)0);
        _exit(1);
    }
    if (pid == 0) {
        char byte;
        close(ends[1]);
        read(ends[0], &byte, 1);
        // The program finds this when the memory is its own again.
        ((uint32_t *)(writable + DATA))[WORDS] = 4711;
        _exit(0);
    }
    for (uint32_t i = 0; i < rounds / 2; i++) round_of(i);
    if (!strcmp(child, "leaves") || !strcmp(child, "executes")) {
        write(ends[1], "x", 1);
        waitpid(pid, 0, 0);
    }
    for (uint32_t i = rounds / 2; i < rounds; i++) {
        usleep(20000);
        if (i % 5 == 0) copies();
        round_of(i);
    }
    printf("%lu, %u from the child\n", sum, ((uint32_t *)(writable + DATA))[WORDS]);
    return 0;
}
