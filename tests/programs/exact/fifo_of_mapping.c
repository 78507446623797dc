// A mapping of a large file grows when a FIFO has the name that the file has in /proc/PID/maps.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGE = 80 << 20 };

int main(int argc, char **argv) {
    char path[4096], listed[4200];
    snprintf(path, sizeof path, "%s.file", argv[0]);
    snprintf(listed, sizeof listed, "%s (deleted)", path);
    unlink(path);
    unlink(listed);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 2l * LARGE) || pwrite(file, "begin", 5, 0) != 5
        || pwrite(file, "end", 3, 2l * LARGE - 4096) != 3)
        return 1;
    char *mapped = mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    if (unlink(path) || mkfifo(listed, 0600))
        return 1;
    mapped = mremap(mapped, 4096, 2l * LARGE, MREMAP_MAYMOVE);
    printf("%s %s\n", mapped, mapped + 2l * LARGE - 4096);
    unlink(listed);
}
