// Saves and restores its flags again and again.
static volatile int done;

int main(void) {
    for (int i = 0; i < 20; i++) {
        // Below what a function may use without moving the stack pointer.
        __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\tpopfq\n\tlea 128(%%rsp), %%rsp\n\tnop"
                         ::: "memory", "cc");
        done++;
    }
    return done;
}
