/* Functions that return vectors, and a structure with a bit field across byte 8. */

typedef float four __attribute__((vector_size(16)));
typedef float two __attribute__((vector_size(8)));
typedef double one __attribute__((vector_size(8)));
typedef float eight __attribute__((vector_size(32)));
struct boxed { four of; };
struct pair { two a, b; };
/* The ABI does not keep the halves of these together. */
union floats { four of; float all[4]; };
union mixed { four of; long low; };
struct large { eight of; };
struct across {
    unsigned long a : 60;
    unsigned long b : 20 __attribute__((packed));
    float f;
};

float nines[8] = {9, 9, 9, 9, 9, 9, 9, 9};
volatile float out;

__attribute__((noinline)) four four_of(float x)
{
    return (four){x, 2, 3, 4};
}

__attribute__((noinline)) struct boxed boxed_of(float x)
{
    return (struct boxed){{x, 2, 3, 4}};
}

__attribute__((noinline)) two two_of(float x)
{
    return (two){x, 2};
}

__attribute__((noinline)) struct pair pair_of(float x)
{
    return (struct pair){{x, 2}, {3, 4}};
}

__attribute__((noinline)) union floats floats_of(float x)
{
    return (union floats){{x, 2, 3, 4}};
}

__attribute__((noinline)) union mixed mixed_of(float x)
{
    return (union mixed){{x, 2, 3, 4}};
}

/* Returned in RAX and RDX. */
__attribute__((noinline)) struct across across_of(float x)
{
    return (struct across){5, 0xabcde, x};
}

/* Returned in memory, and not in XMM0. */
__attribute__((noinline)) one one_of(double x)
{
    return (one){x};
}

/* Returned in YMM0: RAX has another address. */
__attribute__((noinline, target("avx"))) eight eight_of(float x)
{
    eight of = {x, x, x, x, x, x, x, x};
    __asm__ volatile("" : : "a"(nines));
    return of;
}

__attribute__((noinline, target("avx"))) struct large large_of(float x)
{
    struct large of = {{x, x, x, x, x, x, x, x}};
    __asm__ volatile("" : : "a"(nines));
    return of;
}

__attribute__((target("avx"))) static void with_avx(void)
{
    out = eight_of(1.5f)[3] + large_of(1.5f).of[3];
}

int main(void)
{
    out = four_of(1)[3] + boxed_of(1).of[3] + two_of(1)[1] + pair_of(1).b[1];
    out = floats_of(1).of[3] + mixed_of(1).of[3] + (float)one_of(1)[0];
    out = across_of(1.5f).f;
    if (__builtin_cpu_supports("avx"))
        with_avx();
    return 0;
}
