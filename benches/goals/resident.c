// Computes in as much memory as its first argument says, in MB, for as many seconds as its second says.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    size_t length = (size_t)atol(arguments[1]) << 20;
    uint8_t *memory = malloc(length);
    memset(memory, 1, length);
    time_t end = time(NULL) + atol(arguments[2]);
    uint64_t sum = 0, x = 1;
    while (time(NULL) < end)
        for (int i = 0; i < 2000000; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            sum += memory[x % length]++;
        }
    printf("%lu\n", sum);
    return 0;
}
