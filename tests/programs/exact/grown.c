// Mappings of files that grow, shrink and get holes, and mappings that others change: what the program
// sees of them is printed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, RW = PROT_READ | PROT_WRITE };

static int scratch(int pages) {
    char name[] = "/tmp/grown-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    char page[PAGE];
    for (int i = 0; i < pages; i++) {
        memset(page, 'a' + i, PAGE);
        if (write(fd, page, PAGE) != PAGE)
            exit(1);
    }
    return fd;
}

static char *map(int fd, int pages, int prot, int flags) {
    char *p = mmap(NULL, pages * PAGE, prot, flags, fd, 0);
    if (p == MAP_FAILED)
        exit(2);
    return p;
}

static void show(const char *what, const char *p, int pages) {
    printf("%s:", what);
    for (int i = 0; i < pages; i++)
        printf(" %d %d", p[i * PAGE + 1], p[(i + 1) * PAGE - 1]);
    puts("");
}

// The end of the file moves over pages that are mapped.
static void ends(void) {
    int fd = scratch(0);
    char *p = map(fd, 3, RW, MAP_PRIVATE);
    ftruncate(fd, 2 * PAGE);
    p[1] = 'x';
    show("grown by ftruncate", p, 2);
    pwrite(fd, "written", 7, PAGE);
    show("and by pwrite", p, 2);
    munmap(p, 3 * PAGE);
    char *q = map(fd, 3, RW, MAP_SHARED);
    ftruncate(fd, 3 * PAGE);
    q[2 * PAGE + 1] = 'y';
    show("shared", q, 3);
    ftruncate(fd, 0);
    ftruncate(fd, 3 * PAGE);
    show("emptied", q, 3);
    memset(q, 'z', 3 * PAGE);
    ftruncate(fd, 1);
    pwrite(fd, "beyond", 6, 2 * PAGE);
    show("written after its end", q, 3);
    ftruncate(fd, 1);
    fallocate(fd, 0, PAGE, 2 * PAGE);
    show("allocated", q, 3);
    munmap(q, 3 * PAGE);
    q = map(fd, 3, RW, MAP_SHARED);
    show("mapped again", q, 3);
}

// The file is cut by its name, not by a descriptor.
static void cut_by_name(void) {
    char name[] = "/tmp/grown-XXXXXX", page[PAGE];
    int fd = mkstemp(name);
    memset(page, 'n', PAGE);
    if (write(fd, page, PAGE) != PAGE)
        exit(1);
    char *read_only = map(fd, 1, PROT_READ, MAP_PRIVATE), *own = map(fd, 1, RW, MAP_PRIVATE);
    show("before truncate", read_only, 1);
    own[1] = 'o';
    truncate(name, 50);
    show("cut", read_only, 1);
    show("and changed before", own, 1);
    unlink(name);
}

static int growing;

static void grow(int signal) {
    ftruncate(growing, 2 * PAGE);
    (void)signal;
}

// A fault after the end of a file, which the handler moves.
static void faults(void) {
    growing = scratch(1);
    signal(SIGBUS, grow);
    char *p = map(growing, 2, RW, MAP_PRIVATE);
    p[PAGE + 1] = 'f';
    show("after a fault", p, 2);
    growing = scratch(1);
    p = map(growing, 2, RW, MAP_SHARED);
    p[PAGE + 1] = 'g';
    show("after one that is shared", p, 2);
}

// mremap(2) shows more of a file, of which the rest was not looked at before.
static void moves(void) {
    int flags[] = {MAP_PRIVATE, MAP_SHARED};
    for (int i = 0; i < 2; i++) {
        int fd = scratch(4);
        char *p = map(fd, 1, RW, flags[i]);
        p[1] = 'm';
        map(fd, 1, PROT_READ, flags[i]);
        p = mremap(p, PAGE, 3 * PAGE, MREMAP_MAYMOVE);
        show("moved", p, 3);
        p = mremap(p, 3 * PAGE, 2 * PAGE, 0);
        p = mremap(p, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
        p[3 * PAGE + 1] = 'n';
        show("moved again", p, 4);
    }
    // The kernel joins these mappings.
    int fd = scratch(4);
    char *p = map(fd, 4, PROT_READ, MAP_PRIVATE);
    mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    pwrite(fd, "changed", 7, 2 * PAGE);
    mmap(p + 2 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 2 * PAGE);
    p = mremap(p, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE);
    if (p == MAP_FAILED)
        puts("not joined");
    else
        show("joined", p, 4);
}

// Holes of a file: where nothing was written, and where something was.
static void holes(void) {
    const long size = 1L << 30;
    int fd = scratch(0);
    ftruncate(fd, size);
    char *p = mmap(NULL, size, RW, MAP_SHARED, fd, 0);
    p[size / 2] = 1;
    p[size / 2 + 64 * PAGE] = 2;
    munmap(p, size);
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, size / 2, PAGE);
    p = mmap(NULL, size, RW, MAP_SHARED, fd, 0);
    printf("holes: %d %d\n", p[size / 2], p[size / 2 + 64 * PAGE]);
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, size / 2 + 64 * PAGE, PAGE);
    printf("under the mapping: %d\n", p[size / 2 + 64 * PAGE]);
    munmap(p, size);
}

// A call that fails after it has removed mappings, and one that detaches what is left of a segment.
static void parts(void) {
    errno = 0;
    void *beyond = (void *)0xffffffffff600000;
    mmap(beyond, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("beyond the program: %s\n", strerrorname_np(errno));
    int id = shmget(IPC_PRIVATE, 3 * PAGE, 0600);
    char *p = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    p[2 * PAGE] = 's';
    munmap(p, PAGE);
    printf("segment: %c\n", p[2 * PAGE]);
    shmdt(p);
    // What is there now is another one.
    char *q = mmap(p, 3 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("after it: %d\n", q[2 * PAGE]);
}

static char *made;

// A child with this memory maps something, and one with a copy writes to a file that is mapped here.
static void others(void) {
    char *kept = map(-1, 4, RW, MAP_PRIVATE | MAP_ANONYMOUS);
    memset(kept, 'k', 4 * PAGE);
    if (vfork() == 0) {
        made = map(-1, 2, RW, MAP_PRIVATE | MAP_ANONYMOUS);
        made[1] = 'v';
        munmap(kept, PAGE);
        mprotect(kept + PAGE, PAGE, PROT_READ);
        madvise(kept + 2 * PAGE, PAGE, MADV_DONTNEED);
        _exit(0);
    }
    wait(NULL);
    show("by a child with this memory", made, 2);
    show("what is left", kept + PAGE, 3);
    made[PAGE + 1] = 'w';
    int fd = scratch(2);
    char *p = map(fd, 2, PROT_READ, MAP_SHARED);
    show("before the child", p, 2);
    pid_t child = fork();
    if (child == 0) {
        char text[] = "child";
        syscall(SYS_pwrite64, fd, text, 5, PAGE);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    show("after it", p, 2);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    ends();
    cut_by_name();
    faults();
    moves();
    holes();
    parts();
    others();
    return 0;
}
