/* Files, directories, mounts, descriptors, by as many calls as there are. */
#include "calls.h"
#include <linux/fs.h>
#include <linux/fiemap.h>
#include <linux/stat.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/select.h>
#include <sys/timerfd.h>

static int fd, dir;

static void attributes(void)
{
    call(SYS_stat, "file", out(144));
    call(SYS_lstat, "link", out(144));
    call(SYS_fstat, fd, out(144));
    call(SYS_stat, "nowhere", out(144));
    call(SYS_newfstatat, AT_FDCWD, "file", out(144), 0);
    call(SYS_statx, AT_FDCWD, "file", 0, 0xfff, out(256));
    call(SYS_statfs, ".", out(120));
    call(SYS_fstatfs, fd, out(120));
    struct stat root;
    stat("/", &root);
    call(SYS_ustat, root.st_dev, out(32));
    call(SYS_access, "file", R_OK);
    call(SYS_faccessat, AT_FDCWD, "file", R_OK);
    call(439, AT_FDCWD, "file", R_OK, 0);
    call(SYS_chmod, "file", 0600);
    call(SYS_fchmod, fd, 0640);
    call(SYS_fchmodat, AT_FDCWD, "file", 0600);
    call(452, AT_FDCWD, "file", 0600, 0);
    call(SYS_chown, "file", -1, -1);
    call(SYS_fchown, fd, -1, -1);
    call(SYS_lchown, "link", -1, -1);
    call(SYS_fchownat, AT_FDCWD, "file", -1, -1, 0);
    call(SYS_utime, "file", NULL);
    call(SYS_utimes, "file", NULL);
    call(SYS_futimesat, AT_FDCWD, "file", NULL);
    call(SYS_utimensat, AT_FDCWD, "file", NULL, 0);
    call(SYS_umask, 022);
    call(SYS_setxattr, "file", "user.a", "value", 5, 0);
    call(SYS_lsetxattr, "file", "user.b", "value", 5, 0);
    call(SYS_fsetxattr, fd, "user.c", "value", 5, 0);
    call(SYS_getxattr, "file", "user.a", out(100), 100);
    call(SYS_lgetxattr, "file", "user.b", out(100), 100);
    call(SYS_fgetxattr, fd, "user.c", out(100), 100);
    call(SYS_getxattr, "file", "user.a", out(2), 2);
    call(SYS_getxattr, "file", "user.a", NULL, 0);
    call(SYS_listxattr, "file", out(200), 200);
    call(SYS_llistxattr, "file", out(200), 200);
    call(SYS_flistxattr, fd, out(200), 200);
    struct { uint64_t value; uint32_t size, flags; } arguments = { (uint64_t)out(50), 50, 0 };
    call(464, AT_FDCWD, "file", 0, "user.a", with(&arguments, sizeof arguments, 16), 16);
    call(465, AT_FDCWD, "file", 0, out(200), 200);
    arguments.value = (uint64_t)"other";
    arguments.size = 5;
    call(463, AT_FDCWD, "file", 0, "user.d", &arguments, 16);
    call(466, AT_FDCWD, "file", 0, "user.d");
    call(SYS_removexattr, "file", "user.a");
    call(SYS_lremovexattr, "file", "user.b");
    call(SYS_fremovexattr, fd, "user.c");
    call(468, AT_FDCWD, "file", out(64), 24, 0);
    call(468, AT_FDCWD, "file", out(64), 40, 0);
    unsigned handle[2] = { 128, 0 };
    unsigned *whole = with(handle, sizeof handle, 200);
    call(SYS_name_to_handle_at, AT_FDCWD, "file", whole, out(4), 0);
    call(SYS_open_by_handle_at, AT_FDCWD, whole, O_RDONLY);
    handle[0] = 128;
    call(SYS_name_to_handle_at, AT_FDCWD, "file", with(handle, 8, 200), out(8), 1);
    handle[0] = 0;
    call(SYS_name_to_handle_at, AT_FDCWD, "file", with(handle, 8, 200), out(4), 0);
}

static void names(void)
{
    call(SYS_getcwd, out(4096), 4096);
    call(SYS_getcwd, out(1), 1);
    call(SYS_readlink, "link", out(100), 100);
    call(SYS_readlinkat, AT_FDCWD, "link", out(100), 2);
    call(SYS_getdents, dir, out(4000), 4000);
    call(SYS_lseek, dir, 0, SEEK_SET);
    call(SYS_getdents64, dir, out(4000), 4000);
    call(SYS_getdents64, dir, out(4000), 4000);
    call(SYS_mkdir, "d", 0700);
    call(SYS_mkdirat, AT_FDCWD, "e", 0700);
    call(SYS_rename, "d", "f");
    call(SYS_renameat, AT_FDCWD, "f", AT_FDCWD, "g");
    call(SYS_renameat2, AT_FDCWD, "g", AT_FDCWD, "d", 0);
    call(SYS_rmdir, "d");
    call(SYS_unlinkat, AT_FDCWD, "e", AT_REMOVEDIR);
    call(SYS_link, "file", "hard");
    call(SYS_linkat, AT_FDCWD, "file", AT_FDCWD, "hard2", 0);
    call(SYS_symlinkat, "file", AT_FDCWD, "soft");
    call(SYS_unlink, "hard");
    call(SYS_mknod, "fifo", S_IFIFO | 0600, 0);
    call(SYS_mknodat, AT_FDCWD, "fifo2", S_IFIFO | 0600, 0);
    call(SYS_chdir, ".");
    call(SYS_fchdir, dir);
    call(SYS_creat, "created", 0600);
    call(SYS_open, "file", O_RDONLY);
    unsigned long how[3] = { O_RDONLY, 0, 0 };
    call(437, AT_FDCWD, "file", how, sizeof how);
    call(SYS_sysfs, 1, "proc");
    call(SYS_sysfs, 2, 0, out(64));
    call(SYS_sysfs, 3);
    call(SYS_inotify_init);
    int notify = call(SYS_inotify_init1, IN_NONBLOCK);
    int watch = call(SYS_inotify_add_watch, notify, ".", IN_CREATE);
    close(open("noted", O_CREAT | O_RDWR, 0600));
    call(SYS_ioctl, notify, FIONREAD, out(4));
    call(SYS_read, notify, out(500), 500);
    call(SYS_inotify_rm_watch, notify, watch);
    struct { unsigned size, mount_fd; uint64_t id, param, ns; } request = { 24, 0, 0, 0, 0 };
    uint64_t *mount = out(256);
    call(SYS_statx, AT_FDCWD, "/", 0, 0x4000, mount);
    request.id = mount[18];
    request.param = 0x3f;
    call(457, with(&request, 24, 32), out(4096), 4096, 0);
    call(457, with(&request, 24, 32), out(4096), 20, 0);
    request.id = (uint64_t)-1;
    request.param = 0;
    call(458, with(&request, 24, 32), out(8 * 50), 50, 0);
    call(300, 0, O_RDONLY);
    int tree = call(428, AT_FDCWD, ".", 0);
    close(tree);
    call(430, "tmpfs", 0);
    struct { uint32_t size, spare; uint64_t id; uint32_t type, spare2; uint64_t user; } ns = { 32 };
    call(470, with(&ns, sizeof ns, 64), out(80), 10, 0);
}

static void transfers(void)
{
    call(SYS_write, fd, "some bytes to be read again", 27);
    call(SYS_lseek, fd, 0, SEEK_SET);
    call(SYS_read, fd, out(100), 100);
    call(SYS_read, fd, out(100), 100);
    call(SYS_pread64, fd, out(100), 100, 3);
    call(SYS_pwrite64, fd, "x", 1, 3);
    call(SYS_lseek, fd, 0, SEEK_SET);
    call(SYS_readv, fd, vector(5, 100), 2);
    struct iovec written = { "vector", 6 };
    call(SYS_writev, fd, &written, 1);
    call(SYS_preadv, fd, vector(5, 100), 2, 1, 0);
    call(SYS_pwritev, fd, &written, 1, 40, 0);
    call(SYS_preadv2, fd, vector(5, 100), 2, 1, 0, 0);
    call(SYS_pwritev2, fd, &written, 1, 50, 0, 0);
    int other = open("other", O_CREAT | O_RDWR | O_TRUNC, 0600);
    call(SYS_sendfile, other, fd, offset(2), 10);
    call(SYS_copy_file_range, fd, offset(1), other, offset(3), 8, 0);
    int ends[2];
    call(SYS_pipe, out(8));
    call(SYS_pipe2, ends, O_NONBLOCK);
    call(SYS_splice, fd, offset(0), ends[1], NULL, 10, 0);
    call(SYS_vmsplice, ends[0], vector(3, 50), 2, 0);
    call(SYS_splice, fd, offset(0), ends[1], NULL, 10, 0);
    int copies[2];
    pipe2(copies, O_NONBLOCK);
    call(SYS_tee, ends[0], copies[1], 10, 0);
    call(SYS_splice, ends[0], NULL, other, offset(5), 10, 0);
    /* Which direction, the table cannot know. */
    struct iovec given = { out(6), 6 };
    call(SYS_vmsplice, copies[1], &given, 1, 0);
    call(SYS_read, ends[0], out(10), 10);
    call(SYS_read, -1, out(10), 10);
    /* The second half of the buffer is not there. */
    unsigned char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(edge + 4096, 4096);
    memset(edge + 4000, POISON, 96);
    call(SYS_pread64, fd, edge + 4090, 20, 0);
    call(SYS_readlink, "link", edge + 4094, 20);
    call(SYS_getdents64, dir, edge + 4090, 100);
    call(SYS_fstat, fd, edge + 4050);
    call(SYS_ftruncate, other, 100);
    call(SYS_truncate, "other", 50);
    call(SYS_fallocate, other, 0, 0, 200);
    call(SYS_fsync, other);
    call(SYS_fdatasync, other);
    call(SYS_sync_file_range, other, 0, 10, 0);
    call(SYS_readahead, fd, 0, 10);
    call(SYS_fadvise64, fd, 0, 10, 0);
    call(SYS_syncfs, fd);
    uint64_t range[2] = { 0, 4096 };
    call(451, fd, range, out(40), 0);
    call(SYS_memfd_create, "m", 0);
    call(447, 0);
}

static void descriptors(void)
{
    int copy = call(SYS_dup, fd);
    call(SYS_dup2, fd, copy);
    call(SYS_dup3, fd, copy, O_CLOEXEC);
    for (int command = 0; command <= 4; command++)
        call(SYS_fcntl, copy, command, command == 0 ? 10 : 0);
    struct flock lock = { .l_type = F_WRLCK };
    call(SYS_fcntl, fd, F_SETLK, &lock);
    call(SYS_fcntl, fd, F_GETLK, with(&lock, sizeof lock, 64));
    if (fork() == 0) {
        call(SYS_fcntl, fd, F_GETLK, with(&lock, sizeof lock, 64));
        _exit(0);
    }
    wait(NULL);
    lock.l_type = F_UNLCK;
    call(SYS_fcntl, fd, F_SETLKW, &lock);
    lock.l_pid = 0;
    lock.l_type = F_RDLCK;
    call(SYS_fcntl, fd, F_OFD_SETLK, &lock);
    call(SYS_fcntl, fd, F_OFD_GETLK, with(&lock, sizeof lock, 64));
    call(SYS_fcntl, fd, F_OFD_SETLKW, &lock);
    call(SYS_fcntl, fd, F_GETOWN);
    call(SYS_fcntl, fd, F_SETOWN, getpid());
    call(SYS_fcntl, fd, F_SETSIG, 0);
    call(SYS_fcntl, fd, F_GETSIG);
    int owner[2] = { 1, getpid() };
    call(SYS_fcntl, fd, 15, owner);
    call(SYS_fcntl, fd, 16, out(8));
    call(SYS_fcntl, fd, 17, out(8));
    call(SYS_fcntl, fd, F_SETLEASE, F_UNLCK);
    call(SYS_fcntl, fd, F_GETLEASE);
    call(SYS_fcntl, fd, 1027, copy);
    call(SYS_fcntl, fd, 1028, 0);
    call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
    int sealed = memfd_create("s", MFD_ALLOW_SEALING);
    call(SYS_fcntl, sealed, F_ADD_SEALS, F_SEAL_GROW);
    call(SYS_fcntl, sealed, F_GET_SEALS);
    call(SYS_fcntl, fd, 1035, out(8));
    call(SYS_fcntl, fd, 1036, offset(1));
    call(SYS_fcntl, fd, 1039, with("\0\0\0\0", 4, 8));
    call(SYS_fcntl, fd, 999, out(64));
    call(SYS_flock, fd, 2);
    call(SYS_flock, fd, 8);
    int ends[2];
    pipe(ends);
    call(SYS_fcntl, ends[0], F_SETPIPE_SZ, 65536);
    call(SYS_fcntl, ends[0], F_GETPIPE_SZ);
    call(436, copy, copy, 0);
}

static void waiting(void)
{
    int ends[2];
    pipe(ends);
    write(ends[1], "a", 1);
    struct pollfd polled[3] = { { ends[0], POLLIN, 0x5a5a }, { ends[1], POLLOUT, 0x5a5a }, { -1, 0, 0x5a5a } };
    call(SYS_poll, with(polled, sizeof polled, sizeof polled), 3, 0);
    struct timespec soon = { 0, 2000000 };
    call(SYS_ppoll, with(polled, sizeof polled, sizeof polled), 3, with(&soon, 16, 16), NULL, 8);
    call(SYS_ppoll, with(polled + 2, 8, 8), 1, with(&soon, 16, 16), NULL, 8);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    FD_SET(ends[1], &set);
    struct timeval short_time = { 0, 2000 };
    call(SYS_select, 100, with(&set, 16, 16), with(&set, 16, 16), with(&set, 16, 16), with(&short_time, 16, 16));
    call(SYS_pselect6, 65, with(&set, 16, 16), NULL, with(&set, 16, 16), with(&soon, 16, 16), NULL);
    call(SYS_epoll_create, 1);
    int epoll = call(SYS_epoll_create1, 0);
    struct epoll_event event = { EPOLLIN, { .u64 = 77 } };
    call(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, ends[0], &event);
    call(SYS_epoll_wait, epoll, out(12 * 10), 10, 0);
    call(SYS_epoll_pwait, epoll, out(12 * 10), 10, 0, NULL, 8);
    call(441, epoll, out(12 * 10), 10, with(&soon, 16, 16), NULL, 8);
    call(SYS_eventfd, 3);
    int events = call(SYS_eventfd2, 3, EFD_NONBLOCK);
    call(SYS_read, events, out(8), 8);
    call(SYS_read, events, out(8), 8);
    int timer = call(SYS_timerfd_create, CLOCK_MONOTONIC, 0);
    struct itimerspec when = { { 1, 0 }, { 0, 1000 } };
    call(SYS_timerfd_settime, timer, 0, &when, out(32));
    call(SYS_timerfd_gettime, timer, out(32));
    call(SYS_read, timer, out(8), 8);
    sigset_t none = { 0 };
    call(SYS_signalfd, -1, &none, 8);
    call(SYS_signalfd4, -1, &none, 8, 0);
}

int main(void)
{
    alarm(30);
    fd = open("file", O_CREAT | O_RDWR, 0600);
    dir = open(".", O_RDONLY | O_DIRECTORY);
    call(SYS_symlink, "file", "link");
    transfers();
    attributes();
    names();
    descriptors();
    waiting();
    return 0;
}
