/* REP instructions of all sorts, flags on the stack, int3 with a handler. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

static volatile sig_atomic_t traps;

static void on_trap(int sig)
{
    (void)sig;
    traps++;
}

static unsigned long flags(void)
{
    unsigned long value;
    __asm__ volatile("pushfq; popq %0" : "=r"(value));
    return value;
}

int main(void)
{
    char a[600], b[600];
    void *to = a;
    const void *from = b;
    unsigned long count = sizeof a;
    memset(b, 'x', sizeof b);
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
    to = a, count = 50;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(0L) : "memory");
    to = b, count = sizeof b;
    b[500] = 'y';
    __asm__ volatile("repne scasb" : "+D"(to), "+c"(count) : "a"('y') : "cc");
    int at = (int)((char *)to - b);
    to = a, count = 0;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(1) : "memory");
    signal(SIGTRAP, on_trap);
    __asm__ volatile("int3");
    printf("at %d, trap flag %lu, traps %d\n", at, flags() >> 8 & 1, traps);
    return 0;
}
