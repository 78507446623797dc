/* A recursion without a condition, which overflows a small stack. */
#include <sys/resource.h>

static volatile int depth;

int endless(int n)
{
    depth = n;
    return endless(n + 1) + n;
}

int main(void)
{
    struct rlimit limit = { 300000, 300000 };
    setrlimit(RLIMIT_STACK, &limit);
    return endless(0);
}
