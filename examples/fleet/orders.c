/*
 * A test that fails now and then: the total of random orders is compared with
 * the sum of their parts. One of its functions returns a wrong result for some
 * inputs. docs/fleet.md finds out which, from the recordings of many runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { ITEMS = 12 };

struct item {
    int price;
    int quantity;
    int class;
};

static unsigned state;

static unsigned next_random(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static int price_of(unsigned seed) { return 100 + (int)(seed % 900); }
static int quantity_of(unsigned seed) { return 1 + (int)(seed % 9); }
static int class_of(unsigned seed) { return (int)(seed % 3); }

/* The tax in per cent. */
static int tax_of(int class)
{
    static const int taxes[] = {0, 7, 19};
    return taxes[class];
}

/* The bug: the limit is inclusive, and `expected_discount` says it is not. */
static int discount_of(int price, int quantity)
{
    return quantity >= 9 && price > 940 ? 10 : 0;
}

static int expected_discount(int price, int quantity)
{
    return quantity > 9 && price > 940 ? 10 : 0;
}

static long rounded(long hundredths) { return (hundredths + 50) / 100; }

static long line_total(const struct item *item, int discount)
{
    long net = (long)item->price * item->quantity * (100 - discount);
    return rounded(net * (100 + tax_of(item->class)) / 100);
}

static void fill(struct item *items)
{
    for (int i = 0; i < ITEMS; i++) {
        items[i].price = price_of(next_random());
        items[i].quantity = quantity_of(next_random());
        items[i].class = class_of(next_random());
    }
}

static long total(const struct item *items)
{
    long sum = 0;
    for (int i = 0; i < ITEMS; i++)
        sum += line_total(&items[i], discount_of(items[i].price, items[i].quantity));
    return sum;
}

static long expected_total(const struct item *items)
{
    long sum = 0;
    for (int i = 0; i < ITEMS; i++)
        sum += line_total(&items[i], expected_discount(items[i].price, items[i].quantity));
    return sum;
}

static int check(long got, long wanted)
{
    if (got == wanted)
        return 0;
    printf("the total is %ld and should be %ld\n", got, wanted);
    return 1;
}

int main(int argc, char **argv)
{
    struct item items[ITEMS];
    if (argc > 1)
        state = (unsigned)strtoul(argv[1], NULL, 10);
    else if (getrandom(&state, sizeof state, 0) != sizeof state)
        return 2;
    state |= 1;
    fill(items);
    return check(total(items), expected_total(items));
}
