/* System calls that write code, and data beside code. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

typedef int (*function)(void);

int main(void)
{
    unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char template[] = { 0xb8, 1, 0, 0, 0, 0xc3 };      /* mov $1,%eax; ret */
    int fds[2];
    if (page == MAP_FAILED || pipe(fds) != 0)
        return 77;
    memcpy(page, template, sizeof template);
    int first = ((function)page)();
    template[1] = 7;
    if (write(fds[1], template, sizeof template) != sizeof template)
        return 77;
    long got = read(fds[0], page, sizeof template);
    printf("read %ld, then %d after %d\n", got, ((function)page)(), first);

    template[1] = 9;
    struct iovec parts[2] = { { page + 2000, 3 }, { page, sizeof template } };
    if (write(fds[1], "abc", 3) != 3 || write(fds[1], template, sizeof template) < 0)
        return 77;
    got = readv(fds[0], parts, 2);
    printf("readv %ld, then %d\n", got, ((function)page)());

    char *directory = getcwd((char *)page + 1000, 3000);
    printf("getcwd %s, then %d\n", directory ? "is there" : strerror(errno), ((function)page)());
    memcpy(page + 100, template, sizeof template);
    int before = ((function)(page + 100))();
    madvise(page, 4096, MADV_DONTNEED);
    memcpy(page, template, sizeof template);
    printf("%d, and cleared %d\n", before, page[100]);
    return 0;
}
