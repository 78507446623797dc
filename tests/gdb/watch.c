// Variables that are written in many ways.
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static volatile int n;
static char text[16];
static struct {
    char before;
    int value;
} __attribute__((packed)) odd;
static volatile long word;

__attribute__((noinline)) static void count(void) {
    for (int i = 1; i <= 5; i++)
        n = i * 10;
}

int main(void) {
    int ends[2];
    n = 1;
    count();
    if (pipe(ends) != 0 || write(ends[1], "kernel", 6) != 6)
        return 1;
    if (read(ends[0], text, 6) != 6)
        return 1;
    text[0] = 'K';
    odd.value = 5;
    word = 1;
    *(volatile char *)&word = 2;
    *((volatile char *)&word + 7) = 3;
    memset(text, '-', sizeof text - 1);
    return n != 50;
}
