/* Requests of terminals, files, namespaces, pages and whatever devices a machine has. */
#include "calls.h"
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/sched.h>

static void terminals(void)
{
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    call(SYS_ioctl, master, 0x40045431, length(0));
    int slave = call(SYS_ioctl, master, 0x5441, O_RDWR | O_NOCTTY);
    int ends[] = { master, slave };
    setsid();
    call(SYS_ioctl, slave, 0x540e, 0);
    write(master, "a line\n", 7);
    write(slave, "an answer", 9);
    unsigned both[] = { 0x5401, 0x5405, 0x540f, 0x5411, 0x5413, 0x5415, 0x5419, 0x541b, 0x541e,
                        0x5424, 0x5429, 0x802c542a, 0x542e, 0x80045430, 0x80045432, 0x80045438,
                        0x80045439, 0x80045440, 0x5456, 0x5459, 0x545d, 0x5460, 0x80285442 };
    for (int end = 0; end < 2; end++)
        for (unsigned i = 0; i < sizeof both / sizeof *both; i++)
            call(SYS_ioctl, ends[end], both[i], out(128));
    char *termios = out(64);
    call(SYS_ioctl, slave, 0x5401, termios);
    for (int request = 0x5402; request <= 0x5404; request++)
        call(SYS_ioctl, slave, request, termios);
    call(SYS_ioctl, slave, 0x802c542a, termios);
    call(SYS_ioctl, slave, 0x402c542b, termios);
    call(SYS_ioctl, slave, 0x5457, out(64));
    call(SYS_ioctl, slave, 0x5414, with("\30\0\120\0\0\0\0", 8, 8));
    call(SYS_ioctl, slave, 0x5409, 1);
    call(SYS_ioctl, slave, 0x540a, 1);
    call(SYS_ioctl, slave, 0x540b, 0);
    call(SYS_ioctl, slave, 0x540c, 0);
    call(SYS_ioctl, slave, 0x540d, 0);
    call(SYS_ioctl, slave, 0x5410, length(getpid()));
    call(SYS_ioctl, slave, 0x5412, "x");
    call(SYS_ioctl, master, 0x5420, length(1));
    call(SYS_ioctl, slave, 0x5421, length(0));
    call(SYS_ioctl, slave, 0x5423, length(0));
    call(SYS_ioctl, slave, 0x5425, 0);
    call(SYS_ioctl, slave, 0x5427, 0);
    call(SYS_ioctl, slave, 0x5428, 0);
    call(SYS_ioctl, slave, 0x541a, length(0));
    call(SYS_ioctl, slave, 0x5450, 0);
    call(SYS_ioctl, slave, 0x5451, 0);
    call(SYS_ioctl, slave, 0x5452, length(0));
    call(SYS_ioctl, master, 0x40045436, 0);
    call(SYS_ioctl, slave, 0x54fe, out(200));
    signal(SIGHUP, SIG_IGN);
    call(SYS_ioctl, slave, 0x5422, 0);
}

static void files(void)
{
    int fd = open("mapped", O_CREAT | O_RDWR, 0600);
    write(fd, pool, 20000);
    fsync(fd);
    unsigned requests[] = { 1, 2, 0x80086601, 0x80087601, 0x801c581f, 0x81009431, 0x80111500,
                            0x80811501, 0x5460, 0x541b, 0x8010661b, 0xc0046686 };
    for (unsigned i = 0; i < sizeof requests / sizeof *requests; i++)
        call(SYS_ioctl, fd, requests[i], with("\0\0\0\0", 4, 300));
    struct fiemap extents = { .fm_length = ~0ull, .fm_extent_count = 5 };
    call(SYS_ioctl, fd, 0xc020660b, with(&extents, 32, 32 + 5 * 56));
    extents.fm_extent_count = 0;
    call(SYS_ioctl, fd, 0xc020660b, with(&extents, 32, 32));
    call(SYS_ioctl, fd, 0xc0096616, with("\30\0\0\0\0\0\0", 8, 40));
    int other = open("clone", O_CREAT | O_RDWR, 0600);
    call(SYS_ioctl, other, 0x40049409, fd);
    struct { uint64_t offset, length; uint16_t count, a; uint32_t b; struct { int64_t fd; uint64_t offset, done; int32_t status; uint32_t c; } to[2]; } same =
        { 0, 4096, 2, 0, 0, { { other, 0, 0x5a5a, 0x5a5a }, { other, 4096, 0x5a5a, 0x5a5a } } };
    call(SYS_ioctl, fd, 0xc0189436, with(&same, sizeof same, sizeof same));
}

static void devices(void);

static void processes(void)
{
    int pages = open("/proc/self/pagemap", O_RDONLY), maps = open("/proc/self/maps", O_RDONLY);
    struct { uint64_t size, flags, start, end, walk_end, vec, vec_len, max, inverted, mask, any, give; } scan =
        { 96, 0, (uint64_t)pool & ~4095, ((uint64_t)pool & ~4095) + (1 << 17), 0xa5a5, (uint64_t)out(240), 10, 0, 0, 0, 0x8, 0x8 };
    call(SYS_ioctl, pages, 0xc0606610, with(&scan, 96, 96));
    struct { uint64_t size, flags, address, start, end, vma_flags, page, offset, inode; uint32_t major, minor, name_size, build_size; uint64_t name, build; } query =
        { 104, 0x10, (uint64_t)devices, 1, 1, 1, 1, 1, 1, 1, 1, 200, 40, (uint64_t)out(200), (uint64_t)out(40) };
    call(SYS_ioctl, maps, 0xc0686611, with(&query, 104, 104));
    int pidfd = call(434, getpid(), 0);
    uint64_t mask = 0xff;
    call(SYS_ioctl, pidfd, 0xc040ff0b, with(&mask, 8, 64));
    call(SYS_ioctl, pidfd, 0xff01, 0);
    char *names[] = { "/proc/self/ns/mnt", "/proc/self/ns/user", "/proc/self/ns/pid", "/proc/self/ns/net" };
    for (int i = 0; i < 4; i++) {
        int ns = open(names[i], O_RDONLY);
        for (unsigned request = 0xb701; request < 0xb704; request++)
            call(SYS_ioctl, ns, request, 0);
        call(SYS_ioctl, ns, 0xb704, out(4));
        call(SYS_ioctl, ns, 0x8008b705, out(8));
        call(SYS_ioctl, ns, 0x8004b706, getpid());
        call(SYS_ioctl, ns, 0x8004b708, getpid());
        call(SYS_ioctl, ns, 0x8010b70a, with("\20\0\0\0", 4, 16));
        call(SYS_ioctl, ns, 0x8008b70d, out(8));
    }
}

static void devices(void)
{
    int random = open("/dev/urandom", O_RDONLY);
    call(SYS_ioctl, random, 0x80045200, out(4));
    char *blocks[] = { "/dev/vda", "/dev/loop0", "/dev/sda", "/dev/nvme0n1" };
    unsigned requests[] = { 0x125e, 0x1260, 0x1263, 0x1265, 0x1267, 0x1268, 0x80081270, 0x80081272,
                            0x1278, 0x1279, 0x127a, 0x127b, 0x127c, 0x127e, 0x80081280, 0x80041284,
                            0x80041285, 0x0301, 0x4c03, 0x4c05, 0x2272, 0x2276, 0x2282, 0x5382, 0x5386 };
    for (int device = 0; device < 4; device++) {
        int fd = open(blocks[device], O_RDONLY | O_NONBLOCK);
        for (unsigned i = 0; fd >= 0 && i < sizeof requests / sizeof *requests; i++)
            call(SYS_ioctl, fd, requests[i], out(512));
    }
    int tun = open("/dev/net/tun", O_RDWR);
    if (tun >= 0) {
        struct { char name[16]; short flags; } name = { "", 2 };
        call(SYS_ioctl, tun, 0x800454cf, out(4));
        call(SYS_ioctl, tun, 0x400454ca, with(&name, 18, 40));
        call(SYS_ioctl, tun, 0x800454d2, out(40));
        call(SYS_ioctl, tun, 0x800454d3, out(4));
        call(SYS_ioctl, tun, 0x800454d7, out(4));
    }
    int clock = open("/dev/rtc0", O_RDONLY);
    call(SYS_ioctl, clock, 0x80247009, out(36));
    call(SYS_ioctl, clock, 0x80247008, out(36));
    int control = open("/dev/loop-control", O_RDWR);
    call(SYS_ioctl, control, 0x4c82, 0);
    int console = open("/dev/tty0", O_RDONLY);
    unsigned of_console[] = { 0x4b31, 0x4b33, 0x4b3b, 0x4b44, 0x4b62, 0x4b64, 0x4b70, 0x5600, 0x5601, 0x5603 };
    for (unsigned i = 0; console >= 0 && i < sizeof of_console / sizeof *of_console; i++)
        call(SYS_ioctl, console, of_console[i], out(64));
    int fuse = open("/dev/fuse", O_RDWR);
    call(SYS_ioctl, fuse, 0x8004e500, length(0));
    int kvm = open("/dev/kvm", O_RDWR);
    call(SYS_ioctl, kvm, 0xae00, 0);
}

int main(void)
{
    alarm(30);
    files();
    processes();
    devices();
    terminals();
    return 0;
}
