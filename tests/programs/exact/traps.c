// What is easily recorded wrongly: calls that fail and yet change memory, memory that grows by
// itself, calls that write where their arguments do not say so, and permissions that nobody asked for.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/futex.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <mqueue.h>
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
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/user.h>
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

// Advice that a locked page ends has done its part before that. Pages that are forgotten later have
// their first contents again: zeros, or the file's.
static void pinned(void) {
    int fd = file(2 * PAGE);
    pwrite(fd, "file", 4, PAGE);
    char *of_file = mmap(0, 2 * PAGE, BOTH, MAP_PRIVATE, fd, 0);
    char *all[] = {memory(2, BOTH), of_file};
    for (int i = 0; i < 2; i++) {
        char *pages = all[i];
        memset(pages, 'x', 2 * PAGE);
        mlock(pages + PAGE, PAGE);
        failed("part", madvise(pages, 2 * PAGE, MADV_DONTNEED));
        printf("%d %d\n", pages[0], pages[PAGE]);
        munlock(pages + PAGE, PAGE);
        failed("all", madvise(pages, 2 * PAGE, MADV_DONTNEED));
        printf("%d %d\n", pages[0], pages[PAGE]);
    }
}

// A mapping that grows as it moves replaces what is at all of its new place.
static void over(void) {
    char *small = memory(1, BOTH), *large = memory(4, BOTH);
    small[0] = 's';
    memset(large, 'l', 4 * PAGE);
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    failed("over", mremap(small, PAGE, 4 * PAGE, flags, large) == large ? 0 : -1);
    printf("%d %d %d\n", large[0], large[PAGE], large[3 * PAGE]);
}

// Memory that moves and leaves its old place mapped: later changes see that it has no file.
static void left_behind(void) {
    char *old = memory(2, BOTH);
    memset(old, 'o', 2 * PAGE);
    char *new = mremap(old, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    if (new == MAP_FAILED)
        return;
    printf("%d %d\n", old[0], new[PAGE]);
    old[PAGE] = 'p';
    failed("forget", madvise(new, PAGE, MADV_DONTNEED) | madvise(old, 2 * PAGE, MADV_DONTNEED));
    printf("%d %d %d\n", old[PAGE], new[0], new[PAGE]);
    new = mremap(new, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    printf("%d %d\n", new[PAGE], new[63 * PAGE]);
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
    lseek(fd, 30, SEEK_SET);
    struct iovec following = {"following", 9};
    printf("%zd\n", syscall(SYS_pwritev2, fd, &following, 1L, -1L, 0L, 0));
    printf("%.9s\n", mapped + 30);
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

// Reads that go around the kernel's cache need buffers at addresses of their own.
static void direct(void) {
    int fd = file(4 * PAGE);
    pwrite(fd, "direct", 6, 0);
    fcntl(fd, F_SETFL, O_DIRECT);
    char *all = memory(3, BOTH);
    pthread_t thread;
    pthread_create(&thread, 0, computes, 0);
    for (int offset = 0; offset < 4; offset++) {
        char *to = all + (int[]){0, 512, 1, 2048}[offset];
        failed("direct", pread(fd, to, PAGE, 0) == -1 ? -1 : 0);
        puts(to);
    }
    done = 1;
    pthread_join(thread, 0);
}

// The protection of one page may be that of all before it.
static void below(void) {
    char *pages = mmap(0, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);
    failed("up", mprotect(pages + 2 * PAGE, PAGE, BOTH | PROT_GROWSUP));
    failed("down", mprotect(pages + 2 * PAGE, PAGE, BOTH | PROT_GROWSDOWN));
    failed("nothing", mprotect(pages + 2 * PAGE, 0, PROT_READ | PROT_GROWSDOWN));
    pages[0] = 'x';
    pages[2 * PAGE] = 'y';
    failed("last", pipe((int *)(pages + 3 * PAGE)));
    printf("%c%c\n", pages[0], pages[2 * PAGE]);
}

// It traces a child: what it reads there is in its own memory.
static void traces(void) {
    volatile long told = 11;
    pid_t child = fork();
    if (!child) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0))
            _exit(1);
        raise(SIGSTOP);
        getppid();
        _exit(3);
    }
    int status, steps = 0;
    struct user_regs_struct registers = {0};
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
        printf("untraced: %d\n", WEXITSTATUS(status));
        return;
    }
    for (; steps < 20; steps++) {
        ptrace(PTRACE_SINGLESTEP, child, 0, 0);
        waitpid(child, &status, 0);
        ptrace(PTRACE_GETREGS, child, 0, &registers);
    }
    told = 12;
    long word = ptrace(PTRACE_PEEKDATA, child, &told, 0);
    printf("%d %d %d\n", WSTOPSIG(status), registers.rip != 0, (int)word);
    struct { char set[512]; } floating;
    struct iovec part = {&floating, sizeof floating};
    printf("%ld %zu\n", ptrace(PTRACE_GETREGSET, child, 2 /* NT_FPREGSET */, &part), part.iov_len);
    ptrace(PTRACE_SYSCALL, child, 0, 0);
    waitpid(child, &status, 0);
    ptrace(PTRACE_CONT, child, 0, 0);
    waitpid(child, &status, 0);
    printf("%d\n", WEXITSTATUS(status));
}

// Calls that wait for what another thread of the program does.
enum { FULL, EMPTY, OTHER, PAIR, KINDS = 26 };
static int pipes[4][2], locked[2], set, queue, event, mqueue, listener;
static struct sockaddr_un place = {AF_UNIX};
static char fifo[64];
static char bytes[1 << 16];
static pthread_t waiter;

static void prepare(void) {
    for (int i = FULL; i <= OTHER; i++)
        pipe(pipes[i]);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pipes[PAIR]);
    snprintf(fifo, sizeof fifo, "/tmp/fifo%d", getpid());
    mkfifo(fifo, 0600);
    locked[0] = file(PAGE);
    char itself[32];
    snprintf(itself, sizeof itself, "/proc/self/fd/%d", locked[0]);
    locked[1] = open(itself, O_RDWR);
    set = semget(IPC_PRIVATE, 1, 0600);
    queue = msgget(IPC_PRIVATE, 0600);
    event = eventfd(0, 0);
    struct mq_attr sizes = {.mq_maxmsg = 1, .mq_msgsize = 8};
    char name[32];
    snprintf(name, sizeof name, "traps%d", getpid());
    mqueue = syscall(SYS_mq_open, name, O_CREAT | O_RDWR, 0600, &sizes);
    syscall(SYS_mq_unlink, name);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(place.sun_path + 1, 20, "traps%d", getpid());
    bind(listener, (struct sockaddr *)&place, sizeof place);
    listen(listener, 1);
}

static void fill(int fd, int full) {
    fcntl(fd, F_SETFL, full ? O_NONBLOCK : 0);
    while (full && write(fd, bytes, sizeof bytes) > 0)
        ;
    fcntl(fd, F_SETFL, 0);
}

static void *waits(void *kind) {
    struct iovec part = {bytes, 100}, two[] = {{bytes, 3}, {bytes + 100, 3}};
    struct msghdr message = {.msg_iov = two, .msg_iovlen = 2};
    struct mmsghdr messages = {message};
    struct flock lock = {.l_type = F_WRLCK};
    struct { long type; char text[8]; } said;
    struct epoll_event got;
    struct { unsigned long value, address; unsigned flags, reserved; } word = {0, (long)&begun, 2};
    struct timespec second = {1, 0};
    sigset_t usual;
    int data = file(PAGE), events = epoll_create1(0);
    epoll_ctl(events, EPOLL_CTL_ADD, pipes[EMPTY][0], &(struct epoll_event){EPOLLIN});
    sigemptyset(&usual);
    sigaddset(&usual, SIGUSR2);
    long result = 0;
    begun = 0;
    done = 1;
    switch ((long)kind) {
    case 0: result = open(fifo, O_RDONLY) > 0; break;
    case 1: result = flock(locked[0], LOCK_EX); break;
    case 2: result = fcntl(locked[0], F_OFD_SETLKW, &lock); break;
    case 3: result = write(pipes[FULL][1], bytes, 100); break;
    case 4: result = writev(pipes[FULL][1], &part, 1); break;
    case 5: result = splice(pipes[EMPTY][0], 0, data, 0, 3, 0); break;
    case 6: result = tee(pipes[EMPTY][0], pipes[OTHER][1], 3, 0); break;
    case 7: result = vmsplice(pipes[FULL][1], &part, 1, 0); break;
    case 8: result = sendfile(pipes[FULL][1], data, 0, 100); break;
    case 9: result = semop(set, &(struct sembuf){0, -1, 0}, 1); break;
    case 10: result = msgrcv(queue, &said, 8, 0, 0); break;
    case 11: result = syscall(SYS_mq_timedreceive, mqueue, bytes, 8, 0, 0); break;
    case 12: result = read(event, bytes, 8); break;
    case 13: result = accept(listener, 0, 0) > 0; break;
    case 14: result = recvmsg(pipes[PAIR][0], &message, 0); break;
    case 15: result = recvmmsg(pipes[PAIR][0], &messages, 1, 0, 0); break;
    case 16: result = sendmsg(pipes[PAIR][1], &message, 0); break;
    case 17: result = readv(pipes[EMPTY][0], two, 2); break;
    case 18: result = syscall(SYS_preadv2, pipes[EMPTY][0], two, 2, -1L, -1L, 0); break;
    case 19: result = syscall(441 /* epoll_pwait2 */, events, &got, 1, 0, 0, 8) > 0; break;
    case 20: result = syscall(449 /* futex_waitv */, &word, 1, 0, 0, 0) >= 0; break;
    case 21: result = pause(); break;
    case 22: result = clock_nanosleep(CLOCK_MONOTONIC, 0, &second, 0); break;
    case 23: result = sigwaitinfo(&usual, 0); break;
    case 24: result = connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&place, sizeof place); break;
    case 25: result = pselect(pipes[EMPTY][0] + 1, (fd_set *)bytes, 0, 0, 0, 0); break;
    }
    printf("%ld: %ld %.3s\n", (long)kind, result, (long)kind < 10 || (long)kind > 12 ? bytes : "");
    close(data);
    close(events);
    return 0;
}

static void lets_go(long kind) {
    char drained[1 << 16];
    switch (kind) {
    case 0: close(open(fifo, O_WRONLY)); break;
    case 1: flock(locked[1], LOCK_UN); break;
    case 2: close(locked[1]); break;
    case 3: case 4: case 7: case 8: read(pipes[FULL][0], drained, sizeof drained); break;
    case 5: case 6: case 17: case 18: case 19: case 25: write(pipes[EMPTY][1], "abc", 3); break;
    case 9: semop(set, &(struct sembuf){0, 1, 0}, 1); break;
    case 10: msgsnd(queue, &(struct { long type; char text[8]; }){1, "queue"}, 8, 0); break;
    case 11: syscall(SYS_mq_timedsend, mqueue, "mqueue", 8, 1, 0); break;
    case 12: eventfd_write(event, 7); break;
    case 13: connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&place, sizeof place); break;
    case 14: case 15: write(pipes[PAIR][1], "defghi", 6); break;
    case 16: while (recv(pipes[PAIR][0], drained, sizeof drained, MSG_DONTWAIT) >= 0); break;
    case 20: begun = 1; syscall(SYS_futex, &begun, FUTEX_WAKE, 1, 0, 0, 0); break;
    case 21: case 23: pthread_kill(waiter, SIGUSR2); break;
    case 24: accept(listener, 0, 0); break;
    }
}

static void nothing(int signal) {
}

static void blocks(void) {
    prepare();
    signal(SIGUSR2, nothing);
    for (long kind = 0; kind < KINDS; kind++) {
        memset(bytes, kind == 25 ? 0 : '-', sizeof bytes);
        if (kind == 25)
            FD_SET(pipes[EMPTY][0], (fd_set *)bytes);
        fill(pipes[FULL][1], 1);
        fill(pipes[PAIR][1], kind == 16);
        if (kind == 1)
            flock(locked[1], LOCK_EX);
        struct flock lock = {.l_type = F_WRLCK};
        if (kind == 2)
            fcntl(locked[1], F_OFD_SETLKW, &lock);
        for (int i = 0; kind == 24 && i < 2; i++)
            connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&place, sizeof place);
        sigset_t usual;
        sigemptyset(&usual);
        sigaddset(&usual, SIGUSR2);
        pthread_sigmask(kind == 23 ? SIG_BLOCK : SIG_UNBLOCK, &usual, 0);
        done = 0;
        pthread_create(&waiter, 0, waits, (void *)kind);
        while (!done)
            sched_yield();
        usleep(3000);
        lets_go(kind);
        pthread_join(waiter, 0);
        if (kind == 19 || kind == 25 || kind == 6)
            read(pipes[EMPTY][0], bytes, 3);
    }
    unlink(fifo);
    semctl(set, 0, IPC_RMID);
    msgctl(queue, IPC_RMID, 0);
}

// What the kernel writes when a thread is killed in a call: the time that is left.
static struct timespec left[4] = {{9, 5}, {9, 5}, {9, 5}, {9, 5}};
static void *sleeps(void *kind) {
    switch ((long)kind) {
    case 0: nanosleep(&left[0], &left[0]); break;
    case 1: clock_nanosleep(CLOCK_MONOTONIC, 0, &left[1], &left[1]); break;
    case 2: syscall(SYS_ppoll, 0, 0, &left[2], 0, 8); break;
    case 3: syscall(SYS_select, 0, 0, 0, 0, &left[3]); break;
    }
    return 0;
}

static void ends(void) {
    pthread_t thread;
    for (long kind = 0; kind < 4; kind++)
        pthread_create(&thread, 0, sleeps, (void *)kind);
    usleep(20000);
    exit(3);
}

static void killed(void) {
    if (!fork()) {
        usleep(50000);
        kill(getppid(), SIGTERM);
        _exit(0);
    }
    sleeps(0);
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

// Limits that limit nothing.
static void unlimited(void) {
    struct rlimit all;
    getrlimit(RLIMIT_AS, &all);
    failed("setrlimit", setrlimit(RLIMIT_AS, &all));
    failed("prlimit", prlimit(0, RLIMIT_AS, &(struct rlimit){1L << 62, all.rlim_max}, NULL));
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
        {"stops", stops},     {"unknowns", unknowns}, {"direct", direct}, {"below", below},
        {"traces", traces},   {"blocks", blocks},   {"redirects", redirects},
        {"ends", ends},       {"killed", killed},   {"pinned", pinned}, {"over", over},
        {"left_behind", left_behind},
        {"untraced", untraced}, {"old_map", old_map}, {"limits", limits}, {"unlimited", unlimited},
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (argc < 2 || !strcmp(argv[1], all[i].name))
            all[i].run();
    return 0;
}
