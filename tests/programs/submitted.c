/* An asynchronous read writes code, at an address that only its description has. */
#include <linux/aio_abi.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef int (*function)(void);

int main(void)
{
    unsigned char *page = mmap((void *)0x200000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char template[] = { 0xb8, 1, 0, 0, 0, 0xc3 };      /* mov $1,%eax; ret */
    FILE *file = tmpfile();
    aio_context_t context = 0;
    if (page == MAP_FAILED || file == NULL || syscall(SYS_io_setup, 4, &context) != 0)
        return 77;
    memcpy(page, template, sizeof template);
    int first = ((function)page)();
    template[1] = 7;
    if (write(fileno(file), template, sizeof template) != sizeof template)
        return 77;
    struct iocb block = { .aio_lio_opcode = IOCB_CMD_PREAD,
                          .aio_fildes = fileno(file),
                          .aio_buf = (unsigned long)page,
                          .aio_nbytes = sizeof template };
    struct iocb *blocks[] = { &block };
    struct io_event event;
    long made = syscall(SYS_io_submit, context, 1L, blocks);
    long read = syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL);
    printf("%ld %ld %lld, then %d after %d\n", made, read, (long long)event.res,
           ((function)page)(), first);
    return 0;
}
