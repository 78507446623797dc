/* Asks for restartable sequences as a C library does. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RSEQ 334

int main(void)
{
    static char area[32] __attribute__((aligned(32)));
    long result = syscall(RSEQ, area, sizeof area, 0, 0x53053053);
    puts(result == 0 ? "registered" : strerror(errno));
    return 0;
}
