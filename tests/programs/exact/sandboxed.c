// Filters its system calls, and starts processes and programs that inherit the filter: it kills for calls
// that a recorder would like to make.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER(number, with) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, with)

#ifdef THERE
// The linker puts it where the recorder would like to have something.
__attribute__((section(".there"), used)) char there[4096] = "there";
#endif

extern char **environ;
volatile int sum;

static void install(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ANSWER(SYS_getppid, SECCOMP_RET_ERRNO | EPERM),
        ANSWER(SYS_getsid, SECCOMP_RET_KILL_PROCESS),
        ANSWER(SYS_alarm, SECCOMP_RET_TRAP | 5),
        ANSWER(SYS_memfd_create, SECCOMP_RET_KILL_PROCESS),
        ANSWER(SYS_mremap, SECCOMP_RET_KILL_PROCESS),
        ANSWER(SYS_madvise, SECCOMP_RET_ERRNO | EPERM),
        ANSWER(SYS_pause, SECCOMP_RET_KILL_PROCESS),
        ANSWER(SYS_brk, SECCOMP_RET_ERRNO | ENOMEM),
        ANSWER(SYS_munmap, SECCOMP_RET_ERRNO | EPERM),
        // No program here maps memory with this flag, but the recorder does.
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_FIXED_NOREPLACE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        perror("prctl");
}

static void ask(const char *who)
{
    errno = 0;
    long result = syscall(SYS_getppid);
    printf("%s: %ld %d\n", who, result, errno);
}

static void trapped(int number)
{
    sum += number;
}

static void *work(void *arg)
{
    for (int i = 0; i < 100; i++)
        __sync_fetch_and_add(&sum, i);
    return arg;
}

static void is_done(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    printf("status %#x\n", status);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, 0, _IONBF, 0);
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "inner")) {
        ask("inner");
        signal(SIGSYS, trapped);
        syscall(SYS_alarm, 0);
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            pthread_create(&threads[i], 0, work, 0);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], 0);
        printf("sum %d\n", sum);
        if (argc > 2)
            execl("/proc/self/exe", argv[0], argv[2], NULL);
        return 7;
    }
    if (!strcmp(how, "borrower")) {
        pid_t child = vfork();
        if (!child) {
            install();
            execl("/proc/self/exe", argv[0], "inner", NULL);
            _exit(1);
        }
        is_done(child);
        return 0;
    }
    install();
    ask("outer");
    char *inner[] = {argv[0], "inner", argc > 2 ? argv[2] : NULL, NULL};
    if (!strcmp(how, "other"))
        execl(argv[2], argv[2], "inner", NULL);
    if (!strcmp(how, "exec"))
        execv("/proc/self/exe", inner);
    if (!strcmp(how, "fork") || !strcmp(how, "twice")) {
        pid_t child = fork();
        if (!child) {
            ask("child");
            if (!strcmp(how, "twice")) {
                pid_t grandchild = fork();
                if (!grandchild)
                    execv("/proc/self/exe", inner);
                is_done(grandchild);
            }
            syscall(SYS_getsid);
        }
        is_done(child);
    }
    if (!strcmp(how, "vfork")) {
        pid_t child = vfork();
        if (!child) {
            execv("/proc/self/exe", inner);
            _exit(1);
        }
        is_done(child);
    }
    if (!strcmp(how, "spawn")) {
        pid_t child;
        int failed = posix_spawn(&child, "/proc/self/exe", 0, 0, inner, environ);
        if (failed)
            puts("not spawned");
        is_done(child);
    }
    if (!strcmp(how, "shell"))
        printf("shell %#x\n", system("echo a b | cat; exit 3"));
    ask("end");
    return 0;
}
