/* For programs that make many system calls: poisoned buffers, so that every byte that the kernel
   writes is one that changes. Calls that fail here or there are no faults. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/types.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POISON 0xa5
static unsigned char pool[1 << 18];
static size_t used;

/* A buffer that nobody used before, between others. */
static void *out(size_t size)
{
    size_t whole = (size + 64 + 63) & ~(size_t)63;
    if (used + whole > sizeof pool)
        used = 0;
    unsigned char *at = pool + used;
    used += whole;
    memset(at, POISON, whole);
    return at;
}

/* The same, with a value in its first bytes. */
static void *with(const void *value, size_t value_size, size_t size)
{
    return memcpy(out(size), value, value_size);
}

static void *length(unsigned value)
{
    return with(&value, sizeof value, sizeof value);
}

static void *offset(long value)
{
    return with(&value, sizeof value, sizeof value);
}

/* Two buffers in one vector, the second much larger than what comes. */
static struct iovec *vector(size_t first, size_t second)
{
    struct iovec parts[2] = { { out(first), first }, { out(second), second } };
    return with(parts, sizeof parts, sizeof parts);
}

/* All arguments as longs, whatever they are. */
#define call(number, ...) syscall((long)(number) __VA_OPT__(,) __VA_ARGS__)
