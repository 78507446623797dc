// Memory that the kernel writes: by a call that stops, by calls that are logged without a stop.
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static char buffer[16];
static struct timespec now;

int main(void) {
    int ends[2];
    pipe(ends);
    write(ends[1], "first", 5);
    read(ends[0], buffer, 5);
    write(ends[1], "other", 5);
    clock_gettime(CLOCK_REALTIME, &now);
    read(ends[0], buffer, 5);
    clock_gettime(CLOCK_REALTIME, &now);
    puts(buffer);
    return 0;
}
