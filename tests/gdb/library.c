// Functions of the C library, called by way of the procedure linkage table.
#include <stdlib.h>
#include <string.h>

static char text[64];
static volatile int n;

int main(void) {
    n = 1;
    strcpy(text, "17 and more");
    n = rand();
    n += abs(-n);
    free(malloc(100));
    return n == 0;
}
