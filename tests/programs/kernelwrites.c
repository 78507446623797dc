/* System calls that write code, and data beside code. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
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

    /* The code is in the last of three pages, which the calls reach from the first one. They are far
       below the end of the address space, which the size of the read must not pass. */
    unsigned char *pages = mmap((void *)0x200000000, 3 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return 77;
    unsigned char *last = pages + 2 * 4096;
    struct pollfd *polled = (struct pollfd *)pages;
    memset(pages, 0xff, 3 * 4096);      /* no descriptors */
    template[1] = 11;
    memcpy(last + 100, template, sizeof template);
    int result = ((function)(last + 100))();
    int found = poll(polled, 1100, 0);
    printf("%d, then poll %d %d\n", result, found, polled[1023].revents);

    result = ((function)(last + 100))();
    memset(page, 1, 4096);
    if (write(fds[1], page, 4096) != 4096 || write(fds[1], page, 4096) != 4096
        || write(fds[1], template, sizeof template) != sizeof template)
        return 77;
    got = read(fds[0], pages, 0x7ffff000);
    printf("%d, then read %ld, then %d\n", result, got, ((function)last)());

    sigset_t none, *blocked = (sigset_t *)(last + 200);
    sigemptyset(&none);
    int status = sigprocmask(SIG_BLOCK, &none, blocked);
    printf("sigprocmask %d, then %d\n", status, ((function)last)());
    status = syscall(SYS_rt_sigaction, SIGUSR1, NULL, last + 200, 8);
    printf("sigaction %d, then %d\n", status, ((function)last)());
    status = syscall(SYS_clone, CLONE_PARENT_SETTID | SIGCHLD, NULL, last + 200, NULL, NULL);
    if (status == 0)
        _exit(0);
    printf("clone %d, then %d\n", status == *(int *)(last + 200), ((function)last)());
    return 0;
}
