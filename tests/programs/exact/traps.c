// What is easily recorded wrongly: calls that fail and yet change memory, memory that grows by
// itself, calls that write where their arguments do not say so, and permissions that nobody asked for.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#define BOTH (PROT_READ | PROT_WRITE)
#define PAGE 4096

static char *memory(long pages, int protection) {
    return mmap(0, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static int file(long size) {
    char name[] = "/tmp/trapsXXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    ftruncate(fd, size);
    return fd;
}

static void failed(const char *what, long result) {
    printf("%s: %s\n", what, result == -1 ? strerrorname_np(errno) : "done");
}

// Advice and protections that meet a hole have done their part before it, and after it.
static void holes(void) {
    char *all = memory(5, BOTH);
    memset(all, 'x', 5 * PAGE);
    munmap(all + 2 * PAGE, PAGE);
    failed("madvise", madvise(all, 5 * PAGE, MADV_DONTNEED));
    printf("%d %d %d\n", all[0], all[PAGE], all[3 * PAGE]);
    char *none = memory(5, PROT_NONE);
    munmap(none + 2 * PAGE, PAGE);
    failed("mprotect", mprotect(none, 5 * PAGE, BOTH));
    none[0] = none[PAGE + 1] = 'y';
    printf("%c%c\n", none[0], none[PAGE + 1]);
    char *mixed = memory(2, BOTH);
    memset(mixed, 'z', 2 * PAGE);
    mlock(mixed + PAGE, PAGE);
    failed("madvise", madvise(mixed, 2 * PAGE, MADV_DONTNEED));
    printf("%d %d\n", mixed[0], mixed[PAGE]);
    failed("mmap", mmap(mixed, 2 * PAGE, BOTH, MAP_SHARED | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0);
    printf("%d\n", mixed[PAGE]);
    failed("mremap", mremap(none, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
    printf("%c\n", none[0]);
}

// The kernel may forget the pages, or make them fault.
static void advice(void) {
    char *pages = memory(4, BOTH);
    memset(pages, 'x', 4 * PAGE);
    struct iovec part = {pages + PAGE, PAGE};
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    long done = syscall(440, self, &part, 1L, MADV_DONTNEED, 0);
    // Newer kernels do that; nobody can rely on it.
    printf("%d\n", pages[PAGE] == (done == PAGE ? 0 : 'x'));
    done = madvise(pages + 2 * PAGE, PAGE, MADV_FREE);
    printf("%d\n", pages[2 * PAGE] == 'x' || done == 0);
    char *shared = mmap(0, 2 * PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(shared, 'x', 2 * PAGE);
    failed("remove", madvise(shared, PAGE, MADV_REMOVE));
    printf("%d %d\n", shared[0], shared[PAGE]);
}

static long deeper(long depth) {
    volatile char here[64 * 1024];
    here[100] = depth;
    return depth ? deeper(depth - 1) + here[100] : here[100];
}

// Stacks that grow: the first one beyond usual sizes, and one of the program's own.
static void stacks(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    // As large as may be: 96 MiB, if the limit is not less.
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? 120 << 20 : limit.rlim_max;
    setrlimit(RLIMIT_STACK, &limit);
    printf("%ld\n", deeper(limit.rlim_cur >= 120 << 20 ? 96 * 16 : 96));
    char *room = memory(600, PROT_NONE);
    munmap(room, 600 * PAGE);
    char *grows = mmap(room + 590 * PAGE, 2 * PAGE, BOTH,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN | MAP_STACK, -1, 0);
    for (int i = 0; i < 200; i++)
        grows[-i * PAGE / 2] = i;
    printf("%d %d\n", grows[-99 * PAGE], grows[-PAGE / 2]);
}

// Where the kernel writes depends on flags.
static void appends(void) {
    int fd = file(2 * PAGE);
    char *mapped = mmap(0, 4 * PAGE, BOTH, MAP_SHARED, fd, 0);
    ftruncate(fd, 100);
    struct iovec text = {"appended", 8};
    printf("%zd\n", syscall(SYS_pwritev2, fd, &text, 1L, 10L, 0L, 16));
    printf("%.8s %d\n", mapped + 100, mapped[10]);
    pwrite(fd, "plain", 5, 20);
    printf("%.5s\n", mapped + 20);
    ftruncate(fd, 0);
    ftruncate(fd, PAGE);
    printf("%d\n", mapped[20]);
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE);
    printf("%d\n", mapped[100]);
}

static char first[32], second[32];
static int ready[2];
static void *writer(void *tid) {
    *(pid_t *)tid = gettid();
    char byte;
    write(ready[1], "", 1);
    read(ready[0], &byte, 1);
    return 0;
}

// It writes to itself, by other ways than stores.
static void itself(void) {
    strcpy(first, "by a process");
    struct iovec from = {first, 16}, to = {second, 16};
    process_vm_writev(getpid(), &from, 1, &to, 1, 0);
    puts(second);
    pid_t tid = 0;
    pthread_t thread;
    int other[2];
    pipe(ready);
    pipe(other);
    int mine = other[0], its = ready[0];
    ready[0] = mine;
    pthread_create(&thread, 0, writer, &tid);
    char byte;
    read(its, &byte, 1);
    strcpy(first, "by a thread");
    printf("%zd ", process_vm_writev(tid, &from, 1, &to, 1, 0));
    puts(second);
    write(other[1], "", 1);
    pthread_join(thread, 0);
    int fd = open("/proc/self/mem", O_RDWR);
    pwrite(fd, "by a file", 10, (long)second);
    puts(second);
    char *fixed = memory(1, PROT_READ);
    int copy = dup(fd);
    pwrite(copy, "by a copy", 10, (long)fixed);
    puts(fixed);
}

typedef int function(void);
static const char returns[] = {0xb8, 42, 0, 0, 0, 0xc3};

// Pages can be executed though no call says so.
static void implied(void) {
    int before = personality(READ_IMPLIES_EXEC);
    char *code = memory(1, BOTH);
    memcpy(code, returns, sizeof returns);
    printf("%d\n", ((function *)code)());
    char *later = memory(1, PROT_NONE);
    mprotect(later, PAGE, BOTH);
    memcpy(later, returns, sizeof returns);
    printf("%d\n", ((function *)later)());
    personality(before);
}

// Files of two file systems that have the same number.
static void twins(void) {
    if (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0)) {
        puts("a a 1");
        return;
    }
    char *mapped[2];
    ino_t numbers[2];
    for (int i = 0; i < 2; i++) {
        mount("none", "/mnt", "tmpfs", 0, 0);
        int fd = open("/mnt/file", O_RDWR | O_CREAT, 0600);
        struct stat stat;
        ftruncate(fd, PAGE);
        fstat(fd, &stat);
        numbers[i] = stat.st_ino;
        mapped[i] = mmap(0, PAGE, BOTH, MAP_SHARED, fd, 0);
    }
    strcpy(mapped[0], "first");
    strcpy(mapped[1], "second");
    printf("%s %s %d\n", mapped[0], mapped[1], numbers[0] == numbers[1]);
}

// Large files of which little is there.
static void sparse(void) {
    int fd = file(8L << 30);
    pwrite(fd, "there", 5, 4L << 30);
    char *part = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, fd, 4L << 30);
    puts(part);
    munmap(part, PAGE);
    char *all = mmap(0, 8L << 30, BOTH, MAP_SHARED | MAP_NORESERVE, fd, 0);
    all[5L << 30] = 'y';
    printf("%s %c\n", all + (4L << 30), all[5L << 30]);
    fd = memfd_create("large", 0);
    ftruncate(fd, 8L << 30);
    all = mmap(0, 8L << 30, BOTH, MAP_SHARED | MAP_NORESERVE, fd, 0);
    all[5L << 30] = 'z';
    printf("%c\n", all[5L << 30]);
}

static sigjmp_buf out;
static void show(int signal, siginfo_t *info, void *context) {
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (signal == SIGUSR1)
        puts("raised");
    else
        printf("%d %d: trap %lld, error %lld, address %d\n", signal, info->si_code, r[REG_TRAPNO],
               r[REG_ERR], (int)(r[REG_CR2] & 0xfff));
    siglongjmp(out, 1);
}

// What the kernel says of faults in frames.
static void frames(void) {
    struct sigaction action = {.sa_sigaction = show, .sa_flags = SA_SIGINFO};
    int all[] = {SIGSEGV, SIGFPE, SIGTRAP, SIGUSR1, SIGBUS, SIGILL};
    for (int i = 0; i < 6; i++)
        sigaction(all[i], &action, 0);
    char *page = memory(2, PROT_READ);
    munmap(page + PAGE, PAGE);
    volatile int zero = 0;
    for (int i = 0; i < 7; i++)
        if (!sigsetjmp(out, 1))
            switch (i) {
            case 0: page[12] = 1; break;
            case 1: zero = ((volatile char *)page)[PAGE + 7]; break;
            case 2: ((function *)(page + 32))(); break;
            case 3: zero = 70 / zero; break;
            case 4: __asm__ volatile("ud2"); break;
            case 5: raise(SIGUSR1); break;
            case 6: zero = *(volatile char *)0x8000000000000000; break;
            }
}

// The 32-bit way into the kernel.
static long old_call(long number, long a, long b, long c) {
    __asm__ volatile("int $0x80" : "+a"(number) : "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
    return number;
}

static void old(void) {
    char *low = mmap(0, PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    strcpy(low, "old\n");
    fflush(stdout);
    printf("%ld\n", old_call(4, 1, (long)low, 4));
    printf("%d\n", old_call(20, 0, 0, 0) == getpid());
    // uname
    printf("%ld %.5s\n", old_call(122, (long)low, 0, 0), low);
}

static volatile int begun, done;
static volatile long polls;
static void *poll_flag(void *ended) {
    while (!begun)
        polls++;
    while (!*(volatile int *)ended)
        polls++;
    return 0;
}

// A child writes to its parent's memory while another thread reads it.
static void vforks(void) {
    pthread_t thread;
    volatile int ended = 0;
    pthread_create(&thread, 0, poll_flag, (void *)&ended);
    usleep(1000);
    pid_t child = vfork();
    if (!child) {
        begun = 1;
        usleep(5000);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    ended = 1;
    pthread_join(thread, 0);
    waitpid(child, 0, 0);
    printf("%d %d\n", begun, polls > 0);
}

static void *reads_all(void *fd) {
    char buffer[65536];
    usleep(20000);
    while (read(*(int *)fd, buffer, sizeof buffer) > 0)
        ;
    return 0;
}

// close waits for what another thread does.
static void lingers(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0);
    bind(listening, (struct sockaddr *)&address, size);
    getsockname(listening, (struct sockaddr *)&address, &size);
    listen(listening, 1);
    connect(from, (struct sockaddr *)&address, size);
    int to = accept(listening, 0, 0);
    setsockopt(from, SOL_SOCKET, SO_LINGER, &(struct linger){1, 10}, sizeof(struct linger));
    static char much[16 << 20];
    send(from, much, sizeof much, MSG_DONTWAIT);
    pthread_t thread;
    pthread_create(&thread, 0, reads_all, &to);
    close(from);
    pthread_join(thread, 0);
    puts("closed");
}

// What gives a waiting call its end, after a stop in its midst. Waits for it, and prints how it ended.
static void stopped_in(int kind) {
    int ends[2], events = epoll_create1(0);
    pipe(ends);
    epoll_ctl(events, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){.events = EPOLLIN});
    pid_t child = fork();
    if (!child) {
        pid_t parent = getppid();
        usleep(20000);
        kill(parent, SIGSTOP);
        usleep(20000);
        kill(parent, SIGCONT);
        usleep(20000);
        write(ends[1], "x", 1);
        _exit(5);
    }
    struct pollfd ready = {ends[0], POLLIN};
    struct timespec period = {0, 90000000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    char byte = '?';
    int status, word = 0;
    sigset_t none;
    sigemptyset(&none);
    sigaddset(&none, SIGUSR2);
    struct epoll_event event;
    long result = 0;
    errno = 0;
    switch (kind) {
    case 0: result = nanosleep(&period, 0); break;
    case 1: result = poll(&ready, 1, 5000); break;
    case 2: result = select(ends[0] + 1, &set, 0, 0, 0); break;
    case 3: result = read(ends[0], &byte, 1); break;
    case 4: result = epoll_wait(events, &event, 1, 5000); break;
    case 5: result = waitpid(child, &status, 0) == child; break;
    case 6: result = sigtimedwait(&none, 0, &period); break;
    case 7: result = syscall(SYS_futex, &word, 128, 0, &period, 0, 0); break;
    case 8: result = ppoll(&ready, 1, &period, 0); break;
    }
    printf("%d: %ld %s %c\n", kind, result, strerrorname_np(errno), byte);
    waitpid(child, 0, 0);
    for (int i = 0; i < 2; i++)
        close(ends[i]);
    close(events);
}

static void *computes(void *unused) {
    while (!done)
        polls++;
    return unused;
}

static void stops(void) {
    for (int kind = 0; kind < 9; kind++)
        stopped_in(kind);
    pthread_t thread;
    pthread_create(&thread, 0, computes, 0);
    for (int kind = 0; kind < 9; kind++)
        stopped_in(kind);
    done = 1;
    pthread_join(thread, 0);
}

// What a call writes that only its family of devices knows, while another thread runs.
static void unknowns(void) {
    pthread_t thread;
    pthread_create(&thread, 0, computes, 0);
    struct { unsigned command; char rest[200]; } driver = {3};
    struct ifreq request = {.ifr_name = "lo", .ifr_data = (char *)&driver};
    int result = ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCETHTOOL, &request);
    printf("%d %.32s\n", result, driver.rest);
    int set = semget(IPC_PRIVATE, 4, 0600);
    unsigned short values[4] = {1, 2, 3, 4}, got[4];
    semctl(set, 0, SETALL, values);
    semctl(set, 0, GETALL, got);
    printf("%d%d%d%d\n", got[0], got[1], got[2], got[3]);
    semctl(set, 0, IPC_RMID);
    done = 1;
    pthread_join(thread, 0);
    printf("%d\n", syscall(SYS_arch_prctl, 0x5001L, 1L) != 0);
}

// Calls after which the recorder cannot record.
static char selector;
static void redirects(void) {
    failed("prctl", prctl(PR_SET_SYSCALL_USER_DISPATCH, 1L, 0L, 0L, &selector));
    puts("goes on");
}

static void untraced(void) {
    struct { unsigned long flags, pidfd, child_tid, parent_tid, exit_signal, rest[6]; } args = {
        CLONE_UNTRACED, .exit_signal = SIGCHLD};
    pid_t child = syscall(SYS_clone3, &args, sizeof args);
    if (!child)
        _exit(3);
    int status;
    waitpid(child, &status, 0);
    printf("%d\n", WEXITSTATUS(status));
}

static void limits(void) {
    struct rlimit limit = {1L << 40, 1L << 40};
    failed("setrlimit", setrlimit(RLIMIT_AS, &limit));
}

static void old_map(void) {
    unsigned at = old_call(192, 0, PAGE, BOTH);
    printf("%d\n", at != 0);
}

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IONBF, 0);
    static const struct { const char *name; void (*run)(void); } all[] = {
        {"holes", holes},     {"advice", advice},   {"stacks", stacks}, {"appends", appends},
        {"itself", itself},   {"implied", implied}, {"twins", twins},   {"sparse", sparse},
        {"frames", frames},   {"old", old},         {"vforks", vforks}, {"lingers", lingers},
        {"stops", stops}, {"unknowns", unknowns}, {"redirects", redirects}, {"untraced", untraced}, {"old_map", old_map}, {"limits", limits},
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (argc < 2 || !strcmp(argv[1], all[i].name))
            all[i].run();
    return 0;
}
