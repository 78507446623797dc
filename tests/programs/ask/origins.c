// Values that come a long way.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct account {
    int id;
    long owner;
    double rate;
    char name[40];
};

static struct account *accounts[4];
static volatile int signalled;
static long cleared[2];
static long shared;

static long read_owner(int fd) {
    char text[16] = {0};
    read(fd, text, 8);
    long raw;
    memcpy(&raw, text + 2, 4);
    return raw;
}

__attribute__((noinline)) static void set(struct account *a, long owner) { a->owner = owner; }

__attribute__((noinline)) static struct account *copy(const struct account *from) {
    struct account *to = malloc(sizeof *to);
    *to = *from;
    return to;
}

// The value waits in a register that calls restore.
__attribute__((noinline)) static long kept(long value) {
    register long held __asm__("rbx") = value;
    __asm__ volatile("" : "+r"(held));
    for (int i = 0; i < 100; i++)
        free(malloc(i));
    return held;
}

static void on_signal(int number) {
    signalled = number;
    __asm__ volatile("movdqu %%xmm15, %0" : "=m"(cleared));
}

static void *worker(void *argument) {
    shared = (long)argument * 3;
    return 0;
}

// Its branches go both ways.
__attribute__((noinline)) static long pick(long key) {
    for (long i = 0; i < 64; i++)
        if (i == key % 7 + 10)
            return key;
    return 0;
}

// A register that a handler finds as it begins, and that returns with its own value.
__attribute__((noinline)) static long over_signal(long key) {
    long out;
    __asm__ volatile("mov %1, %%rdx\nsyscall\nmov %%rdx, %0"
                     : "=&r"(out)
                     : "r"(key), "a"(62L), "D"((long)getpid()), "S"((long)SIGUSR1)
                     : "rdx", "rcx", "r11", "memory");
    return out;
}

static char fifo[4096];

static void *writer(void *argument) {
    int to = open(fifo, O_WRONLY);
    write(to, "12345678", 8);
    close(to);
    return 0;
}

// Reads from a file whose open waits, and that gets the number of another one.
static long waited(const char *name) {
    pthread_t thread;
    long value;
    snprintf(fifo, sizeof fifo, "%s.fifo", name);
    mkfifo(fifo, 0600);
    pthread_create(&thread, 0, writer, 0);
    close(open(name, O_RDONLY));
    int from = open(fifo, O_RDONLY);
    read(from, &value, sizeof value);
    close(from);
    pthread_join(thread, 0);
    unlink(fifo);
    return value;
}

static void strings(char *to, const char *from, long size) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDONLY);
    struct account first = {7};
    set(&first, read_owner(fd));
    first.rate = 2.5;
    strings(first.name, argv[1], strlen(argv[1]));
    for (int i = 0; i < 4; i++)
        accounts[i] = copy(&first);
    accounts[3]->id += argc;

    long owner = accounts[1]->owner;
    double rate = accounts[2]->rate;
    int seven = accounts[0]->id, nine = accounts[3]->id;
    char letter = accounts[2]->name[1];
    long held = kept(owner);
    signal(SIGUSR1, on_signal);
    __asm__ volatile("pcmpeqd %%xmm15, %%xmm15" ::: "xmm15");
    raise(SIGUSR1);
    int number = signalled;
    long over = over_signal(argc + 0x100), picked = pick(argc + 0x900);
    long piped = waited(argv[1]);
    int ends[2];
    char buffer[16] = "ABCDEFGHIJKLMNO";
    pipe(ends);
    write(ends[1], "xyz", 3);
    read(ends[0], buffer + 4, 3);
    long mixed;
    memcpy(&mixed, buffer, 8);
    pthread_t thread;
    pthread_create(&thread, 0, worker, (void *)14L);
    pthread_join(thread, 0);
    long product = shared;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long seconds = now.tv_sec;
    unsigned stamp;
    __asm__ volatile("rdtsc" : "=a"(stamp) : : "rdx");
    char *name = argv[1];
    char same = 0;
    same = name[0] == '/' ? 0 : 1;
    printf("%ld %ld %ld %ld ", over, picked, mixed, piped);
    printf("%ld %f %d %d %c %ld %d %ld %d\n", owner, rate, seven, nine, letter, held, number, product,
           same);
    abort(); // end
}
