// Without a C library, so that each run executes the same instructions: branches of all kinds, a
// thread, a signal handler, system calls, and code that is mapped a second time and called there.
// Built with -nostdlib -static.

typedef unsigned long word;

static long call(long number, word a, word b, word c, word d, word e, word f) {
    long result;
    register word r10 __asm__("r10") = d;
    register word r8 __asm__("r8") = e;
    register word r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

enum { WRITE = 1, OPEN = 2, MMAP = 9, MUNMAP = 11, SIGACTION = 13, GETPID = 39, EXIT = 60, KILL = 62,
       FUTEX = 202, EXIT_GROUP = 231 };

__attribute__((noinline)) static int fib(int n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

__attribute__((noinline)) static int add(int a) { return a + 3; }
__attribute__((noinline)) static int twice(int a) { return a * 2; }
__attribute__((noinline)) static int less(int a) { return a > 100 ? a - 90 : a; }

static int (*volatile steps[])(int) = {add, twice, less};

// A page of its own, which needs no other.
__attribute__((noinline, section(".plugin"), aligned(4096))) int plugin(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += i & 1 ? i : sum >> 1;
    return sum;
}

extern char __executable_start;
static volatile int handled;

static void handler(int signal) {
    for (int i = 0; i < signal; i++)
        handled++;
}

__asm__("restore: mov $15, %eax\n syscall\n");
extern void restore(void);

static volatile int left = 1;
static char stack[1 << 16] __attribute__((aligned(16)));

__attribute__((used)) static void child(void) {
    int sum = 0;
    for (int i = 0; i < 3000; i++)
        sum = steps[i % 3](sum);
    call(WRITE, 1, (word) "thread\n", 7, 0, 0, 0);
}

static void spawn(void) {
    // CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, CHILD_CLEARTID.
    word flags = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000 | 0x200000;
    register word r10 __asm__("r10") = (word)&left;
    register word r8 __asm__("r8") = 0;
    __asm__ volatile("mov $56, %%eax\n"
                     "syscall\n"
                     "test %%eax, %%eax\n"
                     "jnz 1f\n"
                     "xor %%ebp, %%ebp\n"
                     "call child\n"
                     "mov $60, %%eax\n"
                     "xor %%edi, %%edi\n"
                     "syscall\n"
                     "1:\n"
                     :
                     : "D"(flags), "S"(stack + sizeof stack), "d"(0), "r"(r10), "r"(r8)
                     : "rax", "rcx", "r11", "memory");
}

__attribute__((used)) static void start(word *argv) {
    struct {
        void (*handler)(int);
        word flags;
        void (*restorer)(void);
        word mask;
    } action = {handler, 0x04000000, restore, 0};
    call(SIGACTION, 10, (word)&action, 0, 8, 0, 0);
    call(WRITE, 1, (word) "begin\n", 6, 0, 0, 0);
    int value = fib(15);
    for (int i = 0; i < 200; i++)
        value = steps[(value ^ i) & 1](value) & 0xffff;
    spawn();
    call(FUTEX, (word)&left, 0, 1, 0, 0, 0);
    call(KILL, call(GETPID, 0, 0, 0, 0, 0, 0), 10, 0, 0, 0, 0);
    // The same code, at another place.
    long file = call(OPEN, argv[1], 0, 0, 0, 0, 0);
    word offset = (word)plugin - (word)&__executable_start;
    for (int i = 0; i < 3; i++) {
        long at = call(MMAP, 0, 4096, 5, 2, file, offset);
        value += ((int (*)(int))at)(40 + i);
        // Every other one stays.
        if (i & 1)
            call(MUNMAP, at, 4096, 0, 0, 0, 0);
    }
    call(WRITE, 1, (word) "end\n", 4, 0, 0, 0);
    call(EXIT_GROUP, (handled + value) & 63, 0, 0, 0, 0, 0);
}

__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call start\n hlt\n");
