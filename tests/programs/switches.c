/* Leaves functions without returns: by longjmp, and by switching stacks. */
#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>

static jmp_buf out;
static volatile int landed, done;

static __attribute__((noinline)) void deepest(int n)
{
    if (n == 0)
        longjmp(out, 1);
    deepest(n - 1);
    done++;
}

static __attribute__((noinline)) void tail(void)
{
    landed++;
}

/* Gives up its inner calls ten times. */
static __attribute__((noinline)) void tries(void)
{
    for (volatile int i = 0; i < 10; i++) {
        if (setjmp(out) == 0)
            deepest(3);
        tail();
    }
}

static ucontext_t outside, contexts[2];
static char stacks[2][65536];

static __attribute__((noinline)) void leaf(int i)
{
    done = i;
    if (i == 5)
        abort();
}

/* Both coroutines wait in this function: what is around it tells them apart. */
static __attribute__((noinline)) void yield(int from)
{
    swapcontext(&contexts[from], &contexts[1 - from]);
    done++;
}

static void first(void)
{
    for (int i = 0; i < 50; i++) {
        leaf(-1);
        yield(0);
    }
}

static void second(void)
{
    for (int i = 0; i < 50; i++) {
        leaf(i);
        yield(1);
    }
}

int main(void)
{
    tries();
    void (*functions[2])(void) = {first, second};
    for (int i = 0; i < 2; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = sizeof stacks[i];
        contexts[i].uc_link = &outside;
        makecontext(&contexts[i], functions[i], 0);
    }
    swapcontext(&outside, &contexts[0]);
    return 0;
}
