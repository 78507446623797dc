// Data of all kinds that change, for walks through the past: without the C library, whose
// instructions gdb's own recording does not know, and without addresses.
struct point {
    int x, y;
    struct point *next;
};
union number {
    double real;
    unsigned long bits;
    unsigned char bytes[8];
};
enum color { RED, GREEN, BLUE };

int total, calls, depth;
long table[8];
char text[16] = "abcdefg";
struct point points[4], *first;
union number number;
enum color color;
unsigned char flags;
static double mean;

__attribute__((noinline)) int add(int a, int b)
{
    calls++;
    total += a * b;
    return total % 1000;
}

__attribute__((noinline)) int descend(int left)
{
    int here = left * 3;
    if (left > depth)
        depth = left;
    if (left == 0)
        return 1;
    here += descend(left - 1);
    table[left % 8] += here;
    return here;
}

__attribute__((noinline)) struct point *link_up(int count)
{
    struct point *last = 0;
    for (int i = 0; i < count; i++) {
        points[i % 4].x += i;
        points[i % 4].y = points[i % 4].x ^ i;
        points[i % 4].next = last;
        last = &points[i % 4];
        if (last->next == last)
            last->next = 0;
    }
    return last;
}

__attribute__((noinline)) double halve(double value)
{
    number.real = value / 2;
    mean = (mean + number.real) / 2;
    return mean;
}

__attribute__((noinline)) void turn(char *word, int by)
{
    for (int i = 0; word[i]; i++)
        word[i] = (char)('a' + (word[i] - 'a' + by) % 26);
    flags ^= (unsigned char)(1 << by % 8);
    color = (enum color)((color + 1) % 3);
}

int main(void)
{
    /* What the dynamic linker left there, which depends on the environment. */
    __asm__ volatile("xor %%eax, %%eax; xor %%ecx, %%ecx; xor %%edx, %%edx; xor %%esi, %%esi;"
                     "xor %%edi, %%edi; xor %%r8d, %%r8d; xor %%r9d, %%r9d; xor %%r10d, %%r10d;"
                     "xor %%r11d, %%r11d" ::: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10",
                     "r11");
    for (int round = 0; round < 12; round++) {
        int sum = 0;
        for (int i = 0; i < 3; i++)
            sum += add(round, i);
        if (round % 3 == 0)
            sum += descend(round / 2 + 1);
        first = link_up(round % 5 + 1);
        halve(sum);
        turn(text, round);
        table[round % 8] ^= sum;
    }
    __builtin_trap();
}
