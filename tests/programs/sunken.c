/* A recursion that overflows the stack, and the values at its end. */
#include <sys/resource.h>

static volatile int depth;

static int sink(int n)
{
    volatile char pad[64];
    pad[0] = (char)n;
    depth = n;
    return sink(n + 1) + pad[0];
}

int main(void)
{
    struct rlimit limit = { 300000, 300000 };
    setrlimit(RLIMIT_STACK, &limit);
    return sink(0);
}
