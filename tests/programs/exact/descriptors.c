// Calls on files, pipes, sockets, timers and the like. A hash of all that they write is kept.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/select.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/resource.h>
#include <sys/times.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <netinet/in.h>
#include <net/if.h>
#include <termios.h>
#include <dirent.h>
#include <time.h>
#include <errno.h>
#include <sys/random.h>
#include <sys/wait.h>
static unsigned long H;

static void add(const void *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        H = H * 31 + ((unsigned char *)p)[i];
}

int main() {
    char b[4096];
    int p[2];
    pipe2(p, O_NONBLOCK);
    int fd = open("/proc/self/exe", O_RDONLY);
    struct iovec v[3] = {{b, 3}, {b + 100, 5}, {b + 200, 1000}};
    ssize_t r = readv(fd, v, 3);
    printf("%zd\n", r);
    add(b, 1300);
    r = preadv(fd, v, 3, 64);
    add(b, 1300);
    preadv2(fd, v, 3, 64, 0);
    off_t o = 0;
    r = sendfile(p[1], fd, &o, 3000);
    printf("%zd %ld\n", r, (long)o);
    r = read(p[0], b, 4096);
    printf("%zd\n", r);
    add(b, r);
    loff_t lo = 0;
    r = splice(fd, &lo, p[1], 0, 2000, 0);
    printf("%zd\n", r);
    int p2[2];
    pipe(p2);
    r = tee(p[0], p2[1], 1000, 0);
    printf("%zd\n", r);
    r = read(p[0], b, 4096);
    add(b, r);
    int s[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 3};
    char ctl[64];
    m.msg_control = ctl;
    m.msg_controllen = CMSG_SPACE(4);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(4);
    memcpy(CMSG_DATA(c), &fd, 4);
    sendmsg(s[0], &m, 0);
    m.msg_controllen = 64;
    r = recvmsg(s[1], &m, 0);
    printf("%zd %zu\n", r, m.msg_controllen);
    add(ctl, m.msg_controllen);
    struct mmsghdr mm[2] = {{.msg_hdr = {.msg_iov = v, .msg_iovlen = 2}},
                            {.msg_hdr = {.msg_iov = v + 2, .msg_iovlen = 1}}};
    sendmmsg(s[0], mm, 2, 0);
    r = recvmmsg(s[1], mm, 2, 0, 0);
    printf("%zd %d %d\n", r, mm[0].msg_len, mm[1].msg_len);
    int ep = epoll_create1(0), ev = eventfd(3, 0), tf = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec it = {{0, 0}, {0, 200000000}};
    timerfd_settime(tf, 0, &it, 0);
    struct epoll_event e = {EPOLLIN, {.fd = ev}};
    epoll_ctl(ep, EPOLL_CTL_ADD, ev, &e);
    e.data.fd = tf;
    epoll_ctl(ep, EPOLL_CTL_ADD, tf, &e);
    struct epoll_event out[4];
    r = epoll_wait(ep, out, 4, 100);
    printf("%zd %d\n", r, out[0].data.fd == ev);
    unsigned long x;
    read(ev, &x, 8);
    printf("%lu\n", x);
    r = epoll_pwait(ep, out, 4, 1000, 0);
    printf("%zd\n", r);
    read(tf, &x, 8);
    struct pollfd pf[2] = {{p2[0], POLLIN}, {p[0], POLLIN}};
    r = poll(pf, 2, 5);
    printf("%zd %d\n", r, pf[0].revents);
    struct timespec ts = {0, 2000000};
    ppoll(pf + 1, 1, &ts, 0);
    fd_set rs;
    FD_ZERO(&rs);
    FD_SET(p2[0], &rs);
    FD_SET(p[0], &rs);
    struct timeval tv = {0, 3000};
    r = select(100, &rs, 0, 0, &tv);
    printf("%zd %d\n", r, FD_ISSET(p[0], &rs));
    FD_ZERO(&rs);
    FD_SET(p[0], &rs);
    r = pselect(100, &rs, 0, 0, &ts, 0);
    printf("%zd\n", r);
    int in = inotify_init1(0);
    char dn[] = "/tmp/dirXXXXXX";
    mkdtemp(dn);
    inotify_add_watch(in, dn, IN_ALL_EVENTS);
    char fn[64];
    sprintf(fn, "%s/f", dn);
    int nf = open(fn, O_CREAT | O_RDWR, 0600);
    write(nf, "abc", 3);
    r = read(in, b, 4096);
    printf("%d\n", r > 0);
    setxattr(fn, "user.x", "v", 1, 0);
    getxattr(fn, "user.x", b, 10);
    listxattr(fn, b, 100);
    struct stat st;
    fstat(nf, &st);
    add(&st, sizeof st);
    struct statx sx;
    statx(AT_FDCWD, fn, 0, STATX_ALL, &sx);
    struct statfs sf;
    statfs("/", &sf);
    add(&sf, sizeof sf);
    ftruncate(nf, 100);
    posix_fallocate(nf, 0, 4096);
    lseek(nf, 0, SEEK_HOLE);
    struct flock fl = {F_WRLCK, SEEK_SET, 0, 0};
    fcntl(nf, F_SETLK, &fl);
    fcntl(nf, F_GETLK, &fl);
    copy_file_range(fd, 0, nf, 0, 1000, 0);
    close(nf);
    unlink(fn);
    rmdir(dn);
    int n = 0;
    ioctl(p2[0], FIONREAD, &n);
    printf("%d\n", n);
    struct winsize ws;
    ioctl(1, TIOCGWINSZ, &ws);
    struct termios tt;
    tcgetattr(0, &tt);
    ioctl(fd, FIOCLEX);
    int us = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifconf ic = {sizeof b, {b}};
    ioctl(us, SIOCGIFCONF, &ic);
    add(b, ic.ifc_len);
    struct ifreq ir = {0};
    strcpy(ir.ifr_name, "lo");
    ioctl(us, SIOCGIFFLAGS, &ir);
    add(&ir, sizeof ir);
    ioctl(us, SIOCGIFADDR, &ir);
    add(&ir, sizeof ir);
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    add(&ru, sizeof ru);
    struct tms tm;
    times(&tm);
    add(&tm, sizeof tm);
    struct sysinfo si;
    sysinfo(&si);
    add(&si, sizeof si);
    struct utsname un;
    uname(&un);
    getrandom(b, 100, 0);
    add(b, 100);
    struct rlimit rl;
    getrlimit(RLIMIT_STACK, &rl);
    add(&rl, sizeof rl);
    clock_getres(CLOCK_REALTIME, &ts);
    add(&ts, sizeof ts);
    getcwd(b, 100);
    DIR *d = opendir("/proc/self");
    while (readdir(d))
        H++;
    closedir(d);
    FILE *f = fopen("/proc/self/maps", "r");
    while (fgets(b, 4096, f))
        add(b, strlen(b));
    fclose(f);
    readlink("/proc/self/exe", b, 100);
    gid_t g[100];
    getgroups(100, g);
    int l = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in sa = {AF_INET, 0, {htonl(0x7f000001)}};
    bind(l, (void *)&sa, sizeof sa);
    socklen_t sl = sizeof sa;
    getsockname(l, (void *)&sa, &sl);
    listen(l, 5);
    int k = socket(AF_INET, SOCK_STREAM, 0);
    connect(k, (void *)&sa, sizeof sa);
    struct sockaddr_in pe;
    sl = sizeof pe;
    int ac = accept4(l, (void *)&pe, &sl, 0);
    getpeername(k, (void *)&pe, &sl);
    write(ac, "hello", 5);
    r = recvfrom(k, b, 100, MSG_PEEK, 0, 0);
    printf("%zd\n", r);
    recv(k, b, 100, 0);
    int one = 1;
    setsockopt(k, SOL_SOCKET, SO_KEEPALIVE, &one, 4);
    sl = 4;
    getsockopt(k, SOL_SOCKET, SO_RCVBUF, &n, &sl);
    add(&n, 4);
    char ti[200];
    sl = 200;
    getsockopt(k, 6, 11, ti, &sl);
    add(ti, sl);
    shutdown(k, 2);
    timer_t tid;
    struct sigevent se = {.sigev_notify = SIGEV_NONE};
    timer_create(CLOCK_REALTIME, &se, &tid);
    struct itimerspec i2 = {{1, 0}, {1, 0}};
    timer_settime(tid, 0, &i2, 0);
    timer_gettime(tid, &i2);
    add(&i2, sizeof i2);
    timer_delete(tid);
    char nm[32];
    pwritev(p2[1], v, 1, 0);
    int dd = dup(fd);
    close(dd);
    sync_file_range(fd, 0, 0, 0);
    umask(022);
    access("/", 0);
    int st2;
    if (!fork())
        _exit(5);
    siginfo_t inf;
    waitid(P_ALL, 0, &inf, WEXITED | WNOWAIT);
    struct rusage r2;
    wait4(-1, &st2, 0, &r2);
    printf("%d\n", WEXITSTATUS(st2));
    H += r2.ru_utime.tv_usec;
    printf("%d\n", H != 0);
    return 0;
}
