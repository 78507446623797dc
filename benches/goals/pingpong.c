// Two threads that pass a turn back and forth by futex, 200,000 times.
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TURNS = 200000 };
static _Atomic uint32_t turn;

static void *play(void *number) {
    uint32_t mine = (uintptr_t)number;
    for (uint32_t i = 0; i < TURNS; i++) {
        uint32_t now;
        while (((now = turn) & 1) != mine)
            syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
        turn = now + 1;
        syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
    return NULL;
}

int main(void) {
    pthread_t other;
    pthread_create(&other, NULL, play, (void *)1);
    play((void *)0);
    pthread_join(other, NULL);
    return 0;
}
