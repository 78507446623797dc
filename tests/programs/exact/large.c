// Ends with megabytes of its own memory, after a while of computing. Functions for a debugger at
// the end: each returns the number of bytes that should be zeros and are not.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SIZE (5 << 20)
#define ROOM (64L << 30)

unsigned char *memory, *reserved;

static int filled(const unsigned char *bytes, long size) {
    int count = 0;
    for (long i = 0; i < size; i++)
        count += bytes[i] != 0;
    return count;
}

int grown(void) {
    void *larger = mremap(memory, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
    if (larger == MAP_FAILED)
        return 0;
    memory = larger;
    return filled(memory + SIZE, SIZE);
}

int given_back(void) {
    return madvise(memory, 1 << 20, MADV_DONTNEED) ? 0 : filled(memory, 1 << 20);
}

int main(void) {
    // In the midst of other memory.
    unsigned char *all = mmap(0, 3 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    reserved = mmap(0, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED || reserved == MAP_FAILED)
        return 2;
    memory = all + SIZE;
    memset(memory, 1, SIZE);
    memset(reserved + ROOM / 2, 7, SIZE);
    unsigned x = 1;
    for (int i = 0; i < 5000000; i++) {
        x = x * 1664525 + 1013904223;
        memory[x % SIZE] += i;
    }
    for (int i = 0; i < 500000000; i++)
        __asm__ volatile("");
    memory[100] = 42;
    abort();
}
