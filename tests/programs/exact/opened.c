// Opens, reads and writes files so that calls which need no stop and calls which do alternate: files
// that are mapped, descriptors that become others, pipes that threads wait for, interrupted calls.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[64] = "/tmp/opened.XXXXXX";
static char name[128];

static const char *path(const char *last) {
    snprintf(name, sizeof name, "%s/%s", dir, last);
    return name;
}

static void put(int fd, const char *bytes) {
    if (write(fd, bytes, strlen(bytes)) != (ssize_t)strlen(bytes)) {
        printf("write %d: %d\n", fd, errno);
    }
}

// Reads a small file again and again, then again under the same number.
static void files(void) {
    char bytes[64];
    long sum = 0;
    for (int i = 0; i < 50; i++) {
        int fd = open(path("small"), O_CREAT | O_RDWR | O_TRUNC, 0600);
        put(fd, "some bytes of a file");
        lseek(fd, i % 7, SEEK_SET);
        memset(bytes, 0, sizeof bytes);
        sum += read(fd, bytes, sizeof bytes) * (i + 1) + bytes[0];
        pwrite(fd, "XY", 2, 3);
        struct iovec parts[2] = {{"ab", 2}, {"cde", 3}};
        sum += writev(fd, parts, 2);
        close(fd);
    }
    printf("files %ld\n", sum);
    printf("missing %d", open(path("none"), O_RDONLY));
    printf(" %d", errno);
    printf(", directory %d", open(dir, O_RDWR) < 0 ? errno : 0);
    printf(", exclusive %d\n", open(path("small"), O_CREAT | O_EXCL | O_RDWR, 0600) < 0 ? errno : 0);
    printf("bad path %d\n", open((char *)1, O_RDONLY) < 0 ? errno : 0);
    printf("bad buffer %zd\n", read(open(path("small"), O_RDONLY), (char *)1, 4));
}

// What is written to a file shows in its mappings, whichever way it was opened, and whenever.
static void mapped(void) {
    int first = open(path("mapped"), O_CREAT | O_RDWR | O_TRUNC, 0600);
    ftruncate(first, 8192);
    put(first, "before");
    char *map = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, first, 0);
    printf("mapped %.6s", map);
    lseek(first, 0, SEEK_SET);
    put(first, "after!");
    printf(" %.6s", map);
    int again = open(path("mapped"), O_RDWR);
    put(again, "third!");
    pwrite(again, "4th", 3, 4100);
    printf(" %.6s %.3s", map, map + 4100);
    strcpy(map, "by memory");
    char bytes[16] = {0};
    pread(again, bytes, 9, 0);
    printf(" %s", bytes);
    // Another file has the same descriptor before, and the mapped one another name.
    close(again);
    again = open(path("other"), O_CREAT | O_RDWR, 0600);
    put(again, "not mapped");
    close(again);
    char old[sizeof name];
    strcpy(old, path("mapped"));
    rename(old, path("renamed"));
    again = open(path("renamed"), O_RDWR);
    put(again, "renamed");
    printf(" %.7s", map);
    int cut = open(path("renamed"), O_RDWR | O_TRUNC);
    ftruncate(cut, 8192);
    printf(" cut '%s' '%s'\n", map, map + 4100);
    close(first), close(again), close(cut);
    munmap(map, 8192);
}

// A descriptor is a pipe, then a file, then a pipe again.
static void changing(void) {
    int ends[2];
    char bytes[16] = {0};
    int file = open(path("small"), O_RDWR | O_TRUNC);
    put(file, "file");
    pipe(ends);
    put(ends[1], "first");
    int number = dup(file);
    put(number, "+");
    dup2(ends[1], number);
    put(number, "second");
    dup3(file, number, O_CLOEXEC);
    put(number, "-");
    close(number);
    printf("changing %d", fcntl(ends[1], F_DUPFD, number) == number);
    put(number, "third");
    printf(" %zd", read(ends[0], bytes, 15));
    printf(" %s", bytes);
    lseek(file, 0, SEEK_SET);
    memset(bytes, 0, sizeof bytes);
    printf(" %zd", read(file, bytes, 15));
    printf(" %s\n", bytes);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    printf("empty %zd", read(ends[0], bytes, 15));
    printf(" %zd", read(ends[0], bytes, 15));
    int off = 0;
    ioctl(ends[0], FIONBIO, &off);
    put(ends[1], "4th");
    printf(" %zd\n", read(ends[0], bytes, 15));
    close(number), close(file), close(ends[0]), close(ends[1]);
    int high = dup2(open(path("small"), O_RDWR), 700);
    put(high, "high");
    printf("high %d %zd\n", high, pread(high, bytes, 8, 0));
    syscall(SYS_close_range, 3, 800, 0);
    printf("closed %zd", read(high, bytes, 4));
    printf(" %d\n", errno);
}

// No other thread can open the other end of the FIFO while this one keeps them from running.
static void *opens_to_write(void *unused) {
    int fd = open(path("fifo"), O_WRONLY);
    for (int i = 0; i < 20; i++) {
        put(fd, "line\n");
        sched_yield();
    }
    close(fd);
    return 0;
}

static void fifos(void) {
    pthread_t thread;
    static char bytes[256];
    mkfifo(path("fifo"), 0600);
    pthread_create(&thread, 0, opens_to_write, 0);
    int fd = open(path("fifo"), O_RDONLY), all = 0;
    for (ssize_t size; (size = read(fd, bytes, sizeof bytes)) > 0;) {
        all += size;
    }
    pthread_join(thread, 0);
    printf("fifo %d\n", all);
}

static int sockets[2];

static void *answers(void *unused) {
    char byte;
    while (recv(sockets[1], &byte, 1, 0) == 1) {
        byte++;
        send(sockets[1], &byte, 1, 0);
    }
    return 0;
}

// One end does not wait, and polls by yielding. The other one waits.
static void polls(void) {
    pthread_t thread;
    char byte = 0, large[8] = {0};
    struct sockaddr from;
    socklen_t size = sizeof from;
    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
    fcntl(sockets[0], F_SETFL, O_NONBLOCK);
    pthread_create(&thread, 0, answers, 0);
    for (int i = 0; i < 100; i++) {
        send(sockets[0], &byte, 1, 0);
        while (recv(sockets[0], &byte, 1, 0) != 1) {
            sched_yield();
        }
    }
    int datagrams[2];
    socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, datagrams);
    send(datagrams[0], "longer than the room", 20, 0);
    send(datagrams[0], "second", 6, 0);
    printf("polls %d %zd", byte, recv(datagrams[1], large, 4, MSG_TRUNC));
    printf(" %zd %.8s", recvfrom(datagrams[1], large, 8, 0, &from, &size), large);
    printf(" %zd\n", recv(datagrams[1], large, 8, 0));
    close(sockets[0]);
    pthread_join(thread, 0);
}

enum { CONNECTIONS = 60 };

static void *connects(void *address) {
    for (char i = 0; i < CONNECTIONS; i++) {
        char rest;
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        connect(fd, address, sizeof(struct sockaddr_un));
        usleep(i % 5 * 100);
        send(fd, &i, 1, 0);
        recv(fd, &rest, 1, 0);
        close(fd);
    }
    return 0;
}

// Accepted sockets of few numbers: some that do not wait, each followed by two that do.
static void connections(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", dir);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&address, sizeof address);
    listen(listener, 4);
    pthread_t thread;
    pthread_create(&thread, 0, connects, &address);
    long sum = 0, early = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        int flags = i % 3 ? 0 : SOCK_NONBLOCK;
        int fd = i % 3 == 2 ? accept(listener, 0, 0) : accept4(listener, 0, 0, flags);
        char byte = 0;
        while (recv(fd, &byte, 1, 0) != 1) {
            early += flags == 0;
            usleep(50);
        }
        sum = sum * 31 + byte;
        close(fd);
    }
    pthread_join(thread, 0);
    close(listener);
    printf("connections %ld, %ld did not wait\n", sum, early);
}

// Events are looked for before the thread waits for them: each comes once.
static void events(void) {
    int ends[2], set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLET, {.u64 = 7}}, found[300];
    char byte = 'e';
    pipe2(ends, O_NONBLOCK);
    epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event);
    int all = 0;
    for (int i = 0; i < 50; i++) {
        memset(found, 0, sizeof found);
        all += epoll_wait(set, found, 300, 0) * 1000;
        write(ends[1], &byte, 1);
        all += epoll_wait(set, found, 300, -1) * (int)found[0].data.u64;
        all += epoll_pwait(set, found, 300, 0, 0) * 1000;
    }
    sigset_t mask;
    sigemptyset(&mask);
    write(ends[1], &byte, 1);
    printf("events %d %d", all, epoll_pwait(set, found, 300, 1, &mask));
    printf(" %d %d\n", epoll_wait(set, found, 300, 1), epoll_wait(set, (void *)1, 300, 1));
    int many[280][2];
    for (int i = 0; i < 280; i++) {
        event.data.u64 = i;
        event.events = EPOLLOUT;
        pipe2(many[i], O_NONBLOCK);
        epoll_ctl(set, EPOLL_CTL_ADD, many[i][1], &event);
    }
    printf("many %d", epoll_wait(set, found, 300, 1));
    for (int i = 0; i < 280; i++) {
        all += found[i].data.u64 * i;
        close(many[i][0]), close(many[i][1]);
    }
    printf(" %d\n", all);
}

// Copies from file to file, one of which is mapped.
static void copies(void) {
    char bytes[16] = {0};
    int from = open(path("from"), O_RDWR | O_CREAT, 0600), to = open(path("to"), O_RDWR | O_CREAT, 0600);
    put(from, "to be copied");
    for (int i = 0; i < 10; i++) {
        lseek(from, i, SEEK_SET);
        copy_file_range(from, 0, to, 0, 5, 0);
    }
    off_t at = 3;
    copy_file_range(from, &at, to, 0, 2, 0);
    printf("copies %d %d", (int)at, (int)lseek(to, 0, SEEK_CUR));
    printf(" %d", ioctl(to, _IOW(0x94, 9, int), from) == 0 || errno);
    char *map = mmap(0, 4096, PROT_READ, MAP_SHARED, to, 0);
    printf(" %.12s", map);
    lseek(from, 6, SEEK_SET), lseek(to, 0, SEEK_SET);
    copy_file_range(from, 0, to, 0, 6, 0);
    printf(" %.12s\n", map);
    munmap(map, 4096);
    close(from), close(to);
}

static volatile sig_atomic_t ticks;

static void ticked(int number) { ticks++; }

// Clocks are read without a system call, unless that fails.
static void clocks(void) {
    struct timespec time = {0, -1}, last = {0, 0};
    long wrong = 0;
    for (int i = 0; i < 200; i++) {
        wrong += clock_gettime(i % 2 ? CLOCK_MONOTONIC : CLOCK_BOOTTIME, &time) != 0;
        wrong += clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0 || time.tv_nsec < 0;
        wrong += clock_gettime(CLOCK_MONOTONIC_COARSE, &time) != 0;
    }
    char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    long results[6];
    results[0] = syscall(SYS_clock_gettime, CLOCK_MONOTONIC, pages + 4096);
    results[1] = errno;
    results[2] = syscall(SYS_clock_gettime, CLOCK_MONOTONIC, pages + 4088);
    results[3] = syscall(SYS_clock_gettime, 77, &time);
    results[4] = errno;
    results[5] = syscall(SYS_gettimeofday, pages + 4088, 0);
    printf("clocks %ld:", wrong);
    for (int i = 0; i < 6; i++) {
        printf(" %ld", results[i]);
    }
    printf("\n");
    munmap(pages, 8192);
}

// Signals come in the midst of calls, and of what is done around them.
static void interrupted(void) {
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    struct timeval now = {0, 0}, last = {0, 0};
    struct timespec time;
    long before = -1;
    signal(SIGALRM, ticked);
    setitimer(ITIMER_REAL, &often, 0);
    char bytes[32];
    long wrong = 0;
    for (int i = 0; i < 3000 || ticks < 50; i++) {
        int fd = open(path("small"), O_RDWR | O_CREAT, 0600);
        wrong += fd < 0;
        wrong += pwrite(fd, "0123456789", 10, 0) != 10;
        wrong += read(fd, bytes, 5) != 5 || memcmp(bytes, "01234", 5);
        wrong += close(fd) != 0;
        gettimeofday(&now, 0);
        for (int j = 0; j < 20; j++) {
            wrong += clock_gettime(CLOCK_MONOTONIC, &time) != 0 || time.tv_nsec == before;
            before = time.tv_nsec;
        }
        wrong += now.tv_sec * 1000000 + now.tv_usec < last.tv_sec * 1000000 + last.tv_usec;
        last = now;
    }
    setitimer(ITIMER_REAL, &never, 0);
    printf("interrupted %ld %d\n", wrong, ticks >= 50);
    printf("no time %d %ld\n", gettimeofday(0, 0), syscall(SYS_gettimeofday, 8, 0));
}

// A thread with descriptors of its own closes and opens what has the same number elsewhere.
static int apart(void *unused) {
    char byte;
    int ends[2];
    syscall(SYS_unshare, CLONE_FILES);
    close(5);
    pipe2(ends, O_NONBLOCK);
    write(ends[1], "p", 1);
    return read(ends[0], &byte, 1) == 1 ? byte : 0;
}

static void *runs_apart(void *unused) { return (void *)(long)apart(0); }

static void shared(void) {
    pthread_t thread;
    void *result;
    dup2(open(path("small"), O_RDWR | O_TRUNC), 5);
    put(5, "fifth");
    pthread_create(&thread, 0, runs_apart, 0);
    pthread_join(thread, &result);
    put(5, "+");
    char bytes[8] = {0};
    printf("apart %ld", (long)result);
    printf(" %zd %s\n", pread(5, bytes, 7, 0), bytes);
}

int main(void) {
    mkdtemp(dir);
    files();
    mapped();
    changing();
    fifos();
    polls();
    connections();
    events();
    copies();
    clocks();
    interrupted();
    pid_t child = fork();
    if (child == 0) {
        put(1, "");
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    shared();
    snprintf(name, sizeof name, "rm -r %s", dir);
    return system(name);
}
