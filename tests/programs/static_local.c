// Thread-local variables of a static program, one of them aligned more than the control block.
#include <pthread.h>

static __thread int mine = 7;
static __thread _Alignas(64) char line[3] = "ab";

__attribute__((noinline)) static void stop(void) {
    mine++;
}

static void *run(void *unused) {
    mine = 71;
    line[0] = 'x';
    stop();
    return unused;
}

int main(void) {
    mine = 8;
    stop();
    pthread_t thread;
    pthread_create(&thread, 0, run, 0);
    pthread_join(thread, 0);
    return mine + line[0];
}
