/* Maps fresh memory over its own, a page at a time. */
#include <stdio.h>
#include <sys/mman.h>

#define PAGES 300

int main(void)
{
    int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *memory = mmap(NULL, PAGES * 4096, protection, flags, -1, 0);
    for (int i = 0; i < PAGES; i++)
        if (mmap(memory + i * 4096, 4096, protection, flags | MAP_FIXED, -1, 0) == MAP_FAILED)
            return 1;
    puts("done");
    return 0;
}
