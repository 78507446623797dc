/* Short programs that make life hard for a recorder. The argument says which. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *self;
static volatile long sum;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *adds(void *number)
{
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&mutex);
        sum += (long)number;
        pthread_mutex_unlock(&mutex);
    }
    return number;
}

static void *waits(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void *spins(void *unused)
{
    for (volatile unsigned i = 0;; i++)
        if (i % 1000 == 0)
            pthread_testcancel();
    return unused;
}

static int threads(void)
{
    pthread_t ids[64];
    for (int round = 0; round < 3; round++) {
        for (long i = 0; i < 64; i++)
            pthread_create(&ids[i], NULL, adds, (void *)i);
        for (long i = 0; i < 64; i++)
            pthread_join(ids[i], NULL);
    }
    printf("sum %ld\n", sum);
    return 0;
}

static int cancels(void)
{
    pthread_t ids[64];
    void *result;
    int cancelled = 0;
    for (long i = 0; i < 64; i++)
        pthread_create(&ids[i], NULL, i % 8 ? waits : spins, NULL);
    for (long i = 0; i < 64; i++) {
        pthread_cancel(ids[i]);
        pthread_join(ids[i], &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    printf("cancelled %d\n", cancelled);
    return 0;
}

/* The first thread leaves, and the last one ends the process. */
static void *last(void *first)
{
    pthread_join(*(pthread_t *)first, NULL);
    printf("the first is gone\n");
    exit(5);
}

static int leaves(void)
{
    static pthread_t first;
    pthread_t id;
    first = pthread_self();
    pthread_create(&id, NULL, last, &first);
    pthread_exit(NULL);
}

static int status_of(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int forks(void)
{
    int all = 0;
    for (int i = 0; i < 12; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (i % 4 == 3)
                raise(SIGKILL);
            for (volatile int k = 0; k < 1000; k++)
                ;
            pid_t grandchild = i % 4 == 2 ? fork() : -1;
            if (grandchild == 0)
                _exit(3);
            exit(i + status_of(grandchild));
        }
        all = all * 3 + status_of(child);
    }
    printf("forks %d\n", all);
    return 0;
}

static int vforks(void)
{
    int all = 0;
    for (int i = 0; i < 12; i++) {
        pid_t child = vfork();
        if (child == 0) {
            if (i % 3 == 0)
                _exit(i);
            execl(self, self, i % 3 == 1 ? "false" : "true", (char *)NULL);
            _exit(99);
        }
        all = all * 3 + status_of(child);
    }
    printf("vforks %d\n", all);
    return 0;
}

static int spawns(void)
{
    int all = 0;
    for (int i = 0; i < 12; i++) {
        pid_t child = -1;
        char *argv[] = { self, i % 2 ? "true" : "false", NULL };
        int error = posix_spawn(&child, i % 5 == 4 ? "/nowhere" : self, NULL, NULL, argv, environ);
        all = all * 3 + (error ? 50 : status_of(child));
    }
    printf("spawns %d, system %d\n", all, system("exit 7"));
    return 0;
}

static int chain(int left)
{
    char number[20];
    if (left == 0)
        return 9;
    snprintf(number, sizeof number, "%d", left - 1);
    if (left % 2) {
        /* from another thread's shadow */
        pthread_t id;
        pthread_create(&id, NULL, waits, NULL);
    }
    execl(self, self, "chain", number, (char *)NULL);
    return 98;
}

static int libraries(void)
{
    double all = 0;
    for (int i = 0; i < 20; i++) {
        void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
        double (*function)(double) = library ? dlsym(library, i % 2 ? "cbrt" : "sinh") : NULL;
        all += function ? function(i) : 1e9;
        if (library)
            dlclose(library);
        library = dlopen("libutil.so.1", RTLD_LAZY);
        if (library)
            dlclose(library);
    }
    printf("libraries %.6f\n", all);
    return 0;
}

typedef int (*function)(void);

static int moves(void)
{
    unsigned char template[] = { 0xb8, 1, 0, 0, 0, 0xc3 };      /* mov $1,%eax; ret */
    int all = 0;
    unsigned char *code = mmap(NULL, 1 << 16, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 30; i++) {
        unsigned char *at = code + i % 3 * 4096;
        template[1] = (unsigned char)i;
        mprotect(at, 4096, PROT_READ | PROT_WRITE);
        memcpy(at, template, sizeof template);
        mprotect(at, 4096, PROT_READ | PROT_EXEC);
        all = all * 3 + ((function)at)();
        if (i % 7 == 6) {
            unsigned char *page = mmap(NULL, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memcpy(page, template, sizeof template);
            all += ((function)page)();
            unsigned char *moved = mremap(page, 4096, 8192, MREMAP_MAYMOVE | MREMAP_FIXED,
                                          (unsigned char *)0x200000000 + ((long)i << 20));
            if (moved == MAP_FAILED)
                return 1;
            all += ((function)moved)();
            moved[1]++;
            all += ((function)moved)();
            munmap(moved, 8192);
        }
        if (i % 5 == 4) {
            void *fixed = mmap(code + i % 3 * 4096, 4096, 7,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            template[1] = 77;
            memcpy(fixed, template, sizeof template);
            all += ((function)fixed)();
        }
    }
    munmap(code, 1 << 16);
    printf("moves %d\n", all);
    return 0;
}

static int pipeline(void)
{
    int fds[2];
    if (pipe(fds))
        return 1;
    pid_t writer = fork();
    if (writer == 0) {
        for (int i = 0; i < 2000; i++)
            if (write(fds[1], &i, sizeof i) != sizeof i)
                _exit(1);
        _exit(0);
    }
    close(fds[1]);
    long all = 0;
    for (int i; read(fds[0], &i, sizeof i) == sizeof i;)
        all += i;
    printf("pipeline %ld %d\n", all, status_of(writer));
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    self = argv[0];
    static const struct {
        const char *name;
        int (*run)(void);
    } all[] = {
        { "threads", threads }, { "cancels", cancels }, { "leaves", leaves }, { "forks", forks },
        { "vforks", vforks }, { "spawns", spawns }, { "libraries", libraries }, { "moves", moves },
        { "pipeline", pipeline },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(what, all[i].name))
            return all[i].run();
    if (!strcmp(what, "chain"))
        return chain(argc > 2 ? atoi(argv[2]) : 6);
    return strcmp(what, "true") != 0;
}
