// Threads with values in the tiles of AMX, which a program may use after it asked for them. Before that, its
// instructions are faults.
#include <immintrin.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { REQUEST = 0x1023, TILE_DATA = 18, THREADS = 3, ROUNDS = 300 };

struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

static long sums[THREADS + 1];
static sigjmp_buf before;

static void on_fault(int signal) { siglongjmp(before, signal); }

static void begin(void) {
    struct config config = {.palette = 1};
    for (int i = 0; i < 4; i++) {
        config.bytes[i] = 64;
        config.rows[i] = 16;
    }
    _tile_loadconfig(&config);
    _tile_zero(0);
}

static void *work(void *number) {
    long who = (long)number, sum = 0;
    int8_t a[16][64], b[16][64];
    int32_t c[16][16];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 64; j++) {
            a[i][j] = i + who;
            b[i][j] = j - i;
        }
    begin();
    _tile_loadd(1, a, 64);
    _tile_loadd(2, b, 64);
    for (int round = 0; round < ROUNDS; round++) {
        _tile_dpbssd(0, 1, 2);
        if (round % 10 == who)
            syscall(SYS_sched_yield);
        if (round % 50 == 7) {
            _tile_stored(0, c, 64);
            for (int i = 0; i < 16; i++)
                sum = sum * 31 + c[i][(round + i) % 16];
            usleep(100);
        }
        for (volatile int i = 0; i < 2000; i++)
            ;
    }
    _tile_stored(0, c, 64);
    for (int i = 0; i < 16; i++)
        sum = sum * 31 + c[i][i];
    _tile_release();
    sums[who] = sum;
    return 0;
}

int main(void) {
    unsigned long known = 0;
    if (syscall(SYS_arch_prctl, 0x1021, &known) || !(known >> TILE_DATA & 1)) {
        puts("no tiles");
        return 0;
    }
    signal(SIGILL, on_fault);
    int fault = sigsetjmp(before, 1);
    if (!fault)
        begin();
    if (syscall(SYS_arch_prctl, REQUEST, TILE_DATA))
        return 1;
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    work((void *)THREADS);
    printf("signal %d, then %ld %ld %ld %ld\n", fault, sums[0], sums[1], sums[2], sums[3]);
    return 0;
}
