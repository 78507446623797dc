// Filters its own system calls, in each way that a filter can answer.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define ANSWER(number, with) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, with)

static void install(struct sock_filter *filter, unsigned short count, unsigned flags)
{
    struct sock_fprog program = {count, filter};
    long failed = flags == ~0u ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
                               : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (failed)
        printf("not installed: %ld %s\n", failed, strerror(errno));
    // The kernel does not write there.
    if (program.filter != filter || program.len != count)
        puts("the filter was changed");
}

#define INSTALL(flags, ...) \
    do { \
        struct sock_filter filter[] = {__VA_ARGS__}; \
        install(filter, sizeof filter / sizeof *filter, flags); \
    } while (0)

#define LOAD_NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void trapped(int number, siginfo_t *info, void *context)
{
    ucontext_t *c = context;
    printf("signal %d code %d call %d at the call: %d rax %lld\n", number, info->si_code,
           info->si_syscall, info->si_call_addr == (void *)c->uc_mcontext.gregs[REG_RIP],
           c->uc_mcontext.gregs[REG_RAX]);
    c->uc_mcontext.gregs[REG_RAX] = 4321;
}

static void *work(void *arg)
{
    for (int i = 0; i < 20; i++) {
        char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        page[0] = 1;
        munmap(page, 4096);
        errno = 0;
        if (syscall(SYS_getppid) != -1 || errno != EPERM)
            puts("getppid was made");
    }
    return arg;
}

static void *dies(void *arg)
{
    syscall(SYS_getpgrp);
    puts("survived");
    return arg;
}

static void *sleeps(void *arg)
{
    for (;;)
        pause();
    return arg;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, 0, _IONBF, 0);
    const char *how = argc > 1 ? argv[1] : "";
    errno = 0;
    int known = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL);
    printf("asked: %d %s\n", known, strerror(errno));
    errno = 0;
    known = syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL);
    printf("asked: %d %s\n", known, strerror(errno));
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, 0);

    // Calls by name, by argument, by the address that they come from.
    INSTALL(~0u, LOAD_NUMBER, ANSWER(SYS_getppid, SECCOMP_RET_ERRNO | EPERM),
            ANSWER(SYS_getuid, SECCOMP_RET_ERRNO | 0), ANSWER(SYS_geteuid, SECCOMP_RET_TRAP | 5),
            ANSWER(SYS_getpgrp, SECCOMP_RET_KILL_THREAD), ANSWER(SYS_getsid, SECCOMP_RET_KILL_PROCESS),
            ANSWER(SYS_getegid, SECCOMP_RET_TRACE), ANSWER(SYS_getgid, SECCOMP_RET_LOG),
            // What a recorder would like to make, or to make in another way.
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
            ANSWER(4096, SECCOMP_RET_ERRNO | ENOTTY), LOAD_NUMBER,
            ANSWER(SYS_memfd_create, SECCOMP_RET_ERRNO | ENOTTY),
            ANSWER(SYS_ioctl, SECCOMP_RET_ERRNO | ENOTTY),
            ANSWER(SYS_mremap, SECCOMP_RET_ERRNO | ENOTTY), ALLOW);
    // A second one, for all threads; it begins with what the accumulator is at first.
    INSTALL(SECCOMP_FILTER_FLAG_TSYNC, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS), LOAD_NUMBER,
            ANSWER(SYS_alarm, SECCOMP_RET_ERRNO | ERANGE), ALLOW);
    printf("mode %d\n", prctl(PR_GET_SECCOMP));

    errno = 0;
    long result = syscall(SYS_getppid);
    printf("getppid %ld %d\n", result, errno);
    printf("getuid %ld\n", syscall(SYS_getuid));
    printf("geteuid %ld\n", syscall(SYS_geteuid));
    errno = 0;
    result = syscall(SYS_getegid);
    printf("getegid %ld %d\n", result, errno);
    printf("getgid %d\n", syscall(SYS_getgid) == getgid());
    errno = 0;
    result = syscall(SYS_alarm, 5);
    printf("alarm %ld %d\n", result, errno);
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = 0;
    result = mprotect(page, 4096, PROT_READ);
    printf("mprotect %ld %d\n", result, errno);
    page[0] = 1;

    // The recorder makes a copy of that list, with calls that the filter refuses.
    FILE *maps = fopen("/proc/self/maps", "r");
    printf("maps %d\n", maps && fgetc(maps) != EOF);
    fclose(maps);

    // Its own code, written after the filter is there.
    unsigned char *code = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3; i++) {
        memcpy(code, (unsigned char[]){0xb8, i, 0, 0, 0, 0xc3}, 6);
        printf("code %d\n", ((int (*)(void))code)());
    }

    pthread_t threads[3];
    if (!strcmp(how, "threads") || !strcmp(how, "thread")) {
        for (int i = 0; i < 3; i++)
            pthread_create(&threads[i], 0, work, 0);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], 0);
        puts("threads");
    }
    if (!strcmp(how, "thread")) {
        // It alone dies, and nothing says so but that its ID is cleared.
        pthread_create(&threads[0], 0, dies, 0);
        pthread_join(threads[0], 0);
        puts("a thread died");
    }
    if (!strcmp(how, "fork")) {
        int status;
        if (!fork()) {
            errno = 0;
            result = syscall(SYS_getppid);
            printf("child: %ld %d\n", result, errno);
            syscall(SYS_getsid);
            puts("survived");
            _exit(3);
        }
        wait(&status);
        printf("child: signal %d\n", WTERMSIG(status));
    }
    if (!strcmp(how, "exec")) {
        puts("exec");
        execl("/bin/echo", "echo", "executed", NULL);
    }
    if (!strcmp(how, "kill_all")) {
        for (int i = 0; i < 3; i++)
            pthread_create(&threads[i], 0, sleeps, 0);
        usleep(20000);
        syscall(SYS_getsid);
    }
    if (!strcmp(how, "kill"))
        syscall(SYS_getsid);
    if (!strcmp(how, "kill_thread"))
        syscall(SYS_getpgrp);
    if (!strcmp(how, "default")) {
        signal(SIGSYS, SIG_DFL);
        syscall(SYS_geteuid);
    }
    if (!strcmp(how, "blocked")) {
        sigset_t set;
        sigfillset(&set);
        sigprocmask(SIG_BLOCK, &set, 0);
        syscall(SYS_geteuid);
    }
    puts("end");
    return 0;
}
