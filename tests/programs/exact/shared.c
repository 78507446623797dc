// Memory that other processes write: of forks, of files, of shm_open and shmget; read and written by
// instructions of all kinds, by system calls, by threads, and while signals come.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#define BOTH (PROT_READ | PROT_WRITE)
#define PAGE 4096

struct board {
    _Atomic int turn;
    _Atomic long sum;
    char text[64];
    long words[64];
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

static struct board *shared_board(void) {
    return mmap(0, 4 * PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void await(struct board *board, int turn) {
    while (atomic_load(&board->turn) != turn)
        usleep(50);
}

static int ended(pid_t pid) {
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Numbers go back and forth, by instructions of many kinds.
static int rounds = 40;
static void forks(void) {
    struct board *board = shared_board();
    pid_t child = fork();
    if (!child) {
        for (int i = 0; i < rounds; i++) {
            await(board, 2 * i + 1);
            for (int j = 0; j < 64; j++)
                board->words[j] = i * j;
            snprintf(board->text, sizeof board->text, "round %d of the child", i);
            atomic_store(&board->turn, 2 * i + 2);
        }
        _exit(7);
    }
    long total = 0;
    char copy[64];
    long words[64];
    for (int i = 0; i < rounds; i++) {
        atomic_fetch_add(&board->sum, i);
        atomic_store(&board->turn, 2 * i + 1);
        await(board, 2 * i + 2);
        memcpy(copy, board->text, sizeof copy);
        long count = sizeof words;
        void *to = words, *from = board->words;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
        total += words[63] + board->words[1] + (long)strlen(board->text);
        __asm__ volatile("push (%1)\n pop %0" : "=r"(count) : "r"(&board->words[2]) : "memory");
        total += count;
        long expected = board->words[3];
        total += __atomic_compare_exchange_n(&board->words[3], &expected, 0, 0, 5, 5);
        board->words[4]++;
    }
    printf("%ld %s %ld %d\n", total, copy, (long)board->sum, ended(child));
}

// Parts of the memory get other protections and places, and go.
static void changes(void) {
    char *memory = mmap(0, 8 * PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (!child) {
        for (int i = 0; i < 8; i++)
            memory[i * PAGE] = 'a' + i;
        _exit(0);
    }
    ended(child);
    mprotect(memory + 2 * PAGE, PAGE, PROT_READ);
    munmap(memory + 4 * PAGE, PAGE);
    char *moved = mremap(memory + 6 * PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                         mmap(0, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    char *fixed = mmap(memory + PAGE, PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    strcpy(fixed, "private");
    printf("%c %s %c %c %c %c\n", memory[0], fixed, memory[2 * PAGE], memory[3 * PAGE], moved[0],
           moved[PAGE]);
    child = fork();
    if (!child) {
        moved[1] = '!';
        memory[3 * PAGE + 1] = '?';
        _exit(0);
    }
    ended(child);
    printf("%.2s %.2s\n", moved, memory + 3 * PAGE);
    munmap(moved, 2 * PAGE);
    munmap(memory, 6 * PAGE);
}

// The kernel reads and writes it.
static void calls(void) {
    struct board *board = shared_board();
    char *text = (char *)(board + 1);
    int to[2], from[2];
    pipe(to);
    pipe(from);
    pid_t child = fork();
    if (!child) {
        char letter;
        while (read(to[0], &letter, 1) == 1 && letter != '.') {
            text[0] = letter;
            text[1] = letter + 1;
            write(from[1], text, 2);
        }
        _exit(3);
    }
    char got[8];
    for (int i = 0; i < 10; i++) {
        text[100] = 'a' + i;
        write(to[1], text + 100, 1);
        struct iovec parts[2] = {{text + 200, 1}, {got, 1}};
        if (readv(from[0], parts, 2) == 1)
            read(from[0], got, 1);
        writev(1, (struct iovec[2]){{text + 200, 1}, {text, 2}}, 2);
        write(1, got, 1);
    }
    write(to[1], ".", 1);
    strcpy(text + 300, "/dev/null");
    int null = open(text + 300, O_WRONLY);
    char *words[] = {"/bin/echo", text + 400, 0};
    strcpy(text + 400, " spawned");
    pid_t echo;
    posix_spawn(&echo, words[0], 0, 0, words, 0);
    printf("\n%d %d %d %d\n", null >= 0, ended(child), ended(echo), system("exit 5") >> 8);
    // Arguments that point to what points there.
    struct { unsigned long value, address; unsigned flags, reserved; } wait = {
        atomic_load(&board->turn) + 1, (unsigned long)&board->turn, 2, 0};
    int waited = syscall(449, &wait, 1, 0, 0, 0) ? errno == EAGAIN || errno == ENOSYS : 0;
    struct { unsigned short count; char *filter; } program = {1, text + 500};
    memcpy(text + 500, "\6\0\0\0\1\0\0\0", 8);
    int filters = setsockopt(socket(AF_INET, SOCK_DGRAM, 0), SOL_SOCKET, SO_ATTACH_FILTER, &program,
                             sizeof program);
    // One that is wrong stays wrong.
    wait.address = 8;
    int wrong = syscall(449, &wait, 1, 0, 0, 0) ? errno == EFAULT || errno == ENOSYS : 0;
    printf("%d %d %d\n", waited, filters, wrong);
}

static void *increments(void *board_) {
    struct board *board = board_;
    for (int i = 0; i < 50; i++) {
        pthread_mutex_lock(&board->mutex);
        board->words[0]++;
        pthread_cond_broadcast(&board->changed);
        pthread_mutex_unlock(&board->mutex);
    }
    return 0;
}

// Threads of two processes, one lock.
static void threads(void) {
    struct board *board = shared_board();
    pthread_mutexattr_t mutex;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&board->mutex, &mutex);
    pthread_condattr_t cond;
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&board->changed, &cond);
    pid_t child = fork();
    pthread_t workers[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&workers[i], 0, increments, board);
    pthread_mutex_lock(&board->mutex);
    while (board->words[0] < 300)
        pthread_cond_wait(&board->changed, &board->mutex);
    pthread_mutex_unlock(&board->mutex);
    for (int i = 0; i < 3; i++)
        pthread_join(workers[i], 0);
    if (!child)
        _exit(9);
    printf("%d\n", ended(child));
    printf("%ld\n", board->words[0]);
}

// A thread ends with a lock that another process waits for.
static void *keeps(void *board) {
    pthread_mutex_lock(&((struct board *)board)->mutex);
    return 0;
}

static void robust(void) {
    struct board *board = shared_board();
    pthread_mutexattr_t mutex;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&board->mutex, &mutex);
    pid_t child = fork();
    if (!child) {
        await(board, 1);
        int got = pthread_mutex_lock(&board->mutex);
        _exit(got == EOWNERDEAD ? 5 : 6);
    }
    pthread_t keeper;
    pthread_create(&keeper, 0, keeps, board);
    pthread_join(keeper, 0);
    atomic_store(&board->turn, 1);
    printf("%d\n", ended(child));
}

// A thread waits in a call while an address is left in a register that the call does not take.
static void *waits(void *board) {
    register long flags __asm__("r8") = (long)board, result = 0;
    for (int i = 0; i < 5; i++)
        __asm__ volatile("syscall" : "=a"(result) : "0"(SYS_poll), "D"(0), "S"(0), "d"(20), "r"(flags)
                         : "rcx", "r11", "memory");
    atomic_store(&((struct board *)board)->turn, 1);
    return 0;
}

static void leftovers(void) {
    struct board *board = shared_board();
    pid_t child = fork();
    if (!child) {
        for (int i = 0; !atomic_load(&board->turn); i++)
            board->words[i % 64] = i;
        _exit(8);
    }
    pthread_t waiter;
    pthread_create(&waiter, 0, waits, board);
    unsigned long sum = 0;
    while (!atomic_load(&board->turn))
        sum += board->words[sum % 64];
    pthread_join(waiter, 0);
    // What it is depends on time.
    board->sum = sum;
    printf("%d\n", ended(child));
}

static struct board *watched;
static volatile sig_atomic_t ticks;
static void tick(int signal) {
    (void)signal;
    ticks++;
    atomic_fetch_add(&watched->sum, 1);
}

// Signals come between the accesses.
static void signals(void) {
    struct board *board = watched = shared_board();
    pid_t child = fork();
    if (!child) {
        await(board, 1);
        _exit(2);
    }
    signal(SIGALRM, tick);
    struct itimerval period = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &period, 0);
    while (ticks < 10)
        board->words[1]++;
    setitimer(ITIMER_REAL, &(struct itimerval){0}, 0);
    atomic_store(&board->turn, 1);
    printf("%d %d %d\n", board->sum == ticks, board->words[1] > 0, ended(child));
}

// Signals come amid copies, of memory that changes.
static void copies(void) {
    static char copy[PAGE];
    struct board *board = watched = shared_board();
    char *pages = (char *)board + PAGE;
    pid_t child = fork();
    if (!child) {
        for (unsigned i = 0; !atomic_load(&board->turn); i++)
            pages[i * 77 % PAGE] = i;
        _exit(2);
    }
    signal(SIGALRM, tick);
    struct itimerval period = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &period, 0);
    unsigned long sum = 0;
    for (int i = 0; i < 6; i++) {
        void *to = copy, *from = pages;
        long count = sizeof copy;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
        for (unsigned j = 0; j < sizeof copy; j += 8)
            sum = sum * 31 + *(unsigned long *)(copy + j);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, 0);
    atomic_store(&board->turn, 1);
    // What it is depends on time.
    board->sum = sum;
    printf("%d\n", ended(child));
}

static sigjmp_buf out;
static void jump(int signal) { siglongjmp(out, signal); }

// Faults that are the program's own.
static void faults(void) {
    char name[] = "/tmp/sharedXXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    ftruncate(fd, 2 * PAGE);
    volatile char *memory = mmap(0, 2 * PAGE, BOTH, MAP_SHARED, fd, 0);
    pid_t child = fork();
    if (!child) {
        memory[0] = 'x';
        _exit(0);
    }
    ended(child);
    signal(SIGSEGV, jump);
    signal(SIGBUS, jump);
    int first = sigsetjmp(out, 1);
    if (!first) {
        mprotect((void *)memory, PAGE, PROT_READ);
        printf("%c\n", memory[0]);
        memory[1] = 'y';
    }
    int second = sigsetjmp(out, 1);
    if (!second) {
        ftruncate(fd, PAGE);
        memory[PAGE] = 'z';
    }
    printf("%d %d\n", first, second);
}

static void peer(char *const words[]) {
    pid_t pid;
    posix_spawn(&pid, "/proc/self/exe", 0, 0, words, 0);
    printf("%d\n", ended(pid));
}

// Another program maps the same.
static void strangers(void) {
    char name[64], id[32];
    snprintf(name, sizeof name, "/contraflow-test-%d", getpid());
    int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    ftruncate(fd, PAGE);
    struct board *board = mmap(0, PAGE, BOTH, MAP_SHARED, fd, 0);
    for (int i = 0; i < 3; i++) {
        strcpy(board->text, "asked");
        peer((char *[]){"shared", "answer", name, 0});
        printf("%s %d\n", board->text, board->turn);
    }
    shm_unlink(name);
    int segment = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
    board = shmat(segment, 0, 0);
    shmctl(segment, IPC_RMID, 0);
    snprintf(id, sizeof id, "%d", segment);
    strcpy(board->text, "asked");
    peer((char *[]){"shared", "answer", id, 0});
    printf("%s\n", board->text);
    shmdt(board);
}

// Another program maps a file of this one's, after this one and before it.
static void files(void) {
    char name[] = "/tmp/contraflow-filesXXXXXX";
    int fd = mkstemp(name);
    ftruncate(fd, PAGE);
    for (int i = 0; i < 2; i++) {
        struct board *board = i ? 0 : mmap(0, PAGE, BOTH, MAP_SHARED, fd, 0);
        int asks[2], tells[2];
        char ends[2][16], byte;
        pipe(asks);
        pipe(tells);
        sprintf(ends[0], "%d", asks[0]);
        sprintf(ends[1], "%d", tells[1]);
        pid_t pid;
        posix_spawn(&pid, "/proc/self/exe", 0, 0, (char *[]){"shared", "answer", name, ends[0], ends[1], 0}, 0);
        read(tells[0], &byte, 1);
        if (i)
            board = mmap(0, PAGE, BOTH, MAP_SHARED, fd, 0);
        // A program that maps a file later is found by looking around once in a while.
        sleep(i ? 0 : 3);
        strcpy(board->text, "asked");
        write(asks[1], "", 1);
        while (!board->sum)
            ;
        printf("%s %ld %d\n", board->text, board->sum, ended(pid));
        board->sum = 0;
    }
    unlink(name);
}

static int file_answer(char **words) {
    struct board *board = mmap(0, PAGE, BOTH, MAP_SHARED, open(words[0], O_RDWR), 0);
    char byte;
    write(atoi(words[2]), "", 1);
    read(atoi(words[1]), &byte, 1);
    strcat(board->text, ", answered");
    board->sum = 7;
    return 5;
}

static int answer(const char *name) {
    struct board *board;
    if (*name == '/') {
        int fd = shm_open(name, O_RDWR, 0);
        board = mmap(0, PAGE, BOTH, MAP_SHARED, fd, 0);
    } else
        board = shmat(atoi(name), 0, 0);
    board->turn++;
    strcat(board->text, ", answered");
    return 4;
}

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IONBF, 0);
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "answer"))
        return argc > 4 ? file_answer(argv + 2) : answer(argv[2]);
    if (argc > 2) {
        rounds = atoi(argv[2]);
        puts("begins");
    }
    static const struct { const char *name; void (*run)(void); } all[] = {
        {"forks", forks}, {"changes", changes}, {"calls", calls}, {"threads", threads},
        {"robust", robust}, {"leftovers", leftovers}, {"signals", signals}, {"copies", copies}, {"faults", faults}, {"strangers", strangers},
        {"files", files},
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(what, all[i].name) || !*what)
            all[i].run();
    return 0;
}
