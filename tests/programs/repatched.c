// Code that one thread changes again and again while another one runs it: what was there before a
// change was told of is not executed any more.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { CHANGES = 3000 };

static uint64_t *code;
static atomic_uint told, stale;

static void serialize(void) {
    unsigned leaf = 0, rest;
    __asm__ volatile("cpuid" : "+a"(leaf), "=b"(rest), "=c"(rest), "=d"(rest)::"memory");
}

static void *run(void *unused) {
    (void)unused;
    for (unsigned before = 0; before < CHANGES;) {
        before = atomic_load(&told);
        serialize();
        unsigned value = ((unsigned (*)(void))code)();
        if (value < before)
            atomic_fetch_add(&stale, 1);
    }
    return 0;
}

int main(void) {
    code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char bytes[8] = { 0xb8, 0, 0, 0, 0, 0xc3, 0x90, 0x90 }; // mov eax, 0; ret
    memcpy(code, bytes, sizeof bytes);
    pthread_t thread;
    pthread_create(&thread, 0, run, 0);
    for (unsigned i = 1; i <= CHANGES; i++) {
        for (volatile unsigned wait = i * 7919 % 20000; wait; wait--)
            ;
        memcpy(bytes + 1, &i, sizeof i);
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        __atomic_store_n(code, word, __ATOMIC_SEQ_CST);
        atomic_store(&told, i);
    }
    pthread_join(thread, 0);
    printf("%u stale\n", atomic_load(&stale));
    return atomic_load(&stale) != 0;
}
