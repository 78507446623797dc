/* Indirect calls to functions that change all the time, as virtual ones do. */
#include <stdio.h>

typedef unsigned (*operation)(unsigned);

static unsigned add(unsigned x) { return x + 7; }
static unsigned twist(unsigned x) { return x ^ x >> 3; }
static unsigned scale(unsigned x) { return x * 5; }
static unsigned turn(unsigned x) { return x << 7 | x >> 25; }

int main(void)
{
    static const operation table[] = { add, twist, scale, turn };
    unsigned x = 1;
    for (int i = 0; i < 300000000; i++)
        x = table[(x >> 5) & 3](x);
    printf("%u\n", x);
    return 0;
}
