// Instructions that repeat, over what is watched. The third element of `table` becomes 0, 7, 3.
#include <stdio.h>
#include <string.h>

static long table[8], other[8] = {1, 2, 3, 4, 5, 6, 7, 8};

__attribute__((noinline)) static void fill(long *to, long value, long count) {
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(value) : "memory");
}

__attribute__((noinline)) static void copy(void *to, void *from, long size) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

int main(void) {
    fill(table, 7, 8);
    copy(table, other, sizeof table);
    copy(table, other, sizeof table);
    printf("%ld\n", table[2]);
    return 0;
}
