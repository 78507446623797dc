/* Processes, signals, time, scheduling, limits, memory, by as many calls as there are. */
#include "calls.h"
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <pthread.h>

static void handler(int signal) { (void)signal; }

static void identity(void)
{
    int plain[] = { SYS_getpid, SYS_getppid, SYS_gettid, SYS_getuid, SYS_geteuid, SYS_getgid,
                    SYS_getegid, SYS_getpgrp, SYS_setsid, SYS_sync, SYS_sched_yield, SYS_munlockall };
    for (unsigned i = 0; i < sizeof plain / sizeof *plain; i++)
        call(plain[i]);
    call(SYS_getpgid, 0);
    call(SYS_getsid, 0);
    call(SYS_setpgid, 0, 0);
    call(SYS_getresuid, out(4), out(4), out(4));
    call(SYS_getresgid, out(4), out(4), out(4));
    call(SYS_setresuid, -1, -1, -1);
    call(SYS_setresgid, -1, -1, -1);
    call(SYS_setreuid, -1, -1);
    call(SYS_setregid, -1, -1);
    call(SYS_setuid, getuid());
    call(SYS_setgid, getgid());
    call(SYS_setfsuid, -1);
    call(SYS_setfsgid, -1);
    call(SYS_setgroups, 1, length(getgid()));
    call(SYS_getgroups, 20, out(80));
    call(SYS_getgroups, 0, NULL);
    unsigned versions[] = { 0x19980330, 0x20071026, 0x20080522, 0x12345678 };
    for (int i = 0; i < 4; i++) {
        unsigned header[2] = { versions[i], 0 };
        call(SYS_capget, with(header, 8, 8), out(24));
    }
    unsigned header[2] = { 0x20080522, 0 };
    unsigned *sets = out(24);
    call(SYS_capget, header, sets);
    call(SYS_capset, header, sets);
    call(SYS_capset, with("\1\2\3\4\0\0\0", 8, 8), sets);
    call(SYS_uname, out(390));
    call(SYS_sysinfo, out(112));
    call(SYS_getrandom, out(20), 20, 0);
    call(SYS_syslog, 10);
    call(SYS_syslog, 3, out(500), 500);
    call(SYS_getcpu, out(4), out(4), NULL);
    call(SYS_personality, 0xffffffff);
    call(SYS_kcmp, getpid(), getpid(), 0, 0, 0);
    call(459, 100, out(200), length(200), 0);
    call(459, 100, out(200), length(1), 0);
    call(461, out(80), length(80), 0);
    call(461, out(80), length(1), 0);
}

static void signals(void)
{
    struct sigaction action = { .sa_handler = handler };
    sigaction(SIGUSR1, &action, NULL);
    call(SYS_rt_sigaction, SIGUSR1, NULL, out(32), 8);
    uint64_t usr1 = 1 << (SIGUSR1 - 1);
    call(SYS_rt_sigprocmask, SIG_BLOCK, &usr1, out(8), 8);
    call(SYS_kill, getpid(), SIGUSR1);
    call(SYS_rt_sigpending, out(8), 8);
    call(SYS_rt_sigpending, out(8), 4);
    struct timespec soon = { 0, 1000000 };
    call(SYS_rt_sigtimedwait, &usr1, out(128), &soon, 8);
    call(SYS_rt_sigtimedwait, &usr1, out(128), &soon, 8);
    call(SYS_tkill, call(SYS_gettid), SIGUSR1);
    call(SYS_rt_sigsuspend, with("\0\0\0\0\0\0\0", 8, 8), 8);
    call(SYS_rt_sigprocmask, SIG_UNBLOCK, &usr1, NULL, 8);
    call(SYS_tgkill, getpid(), call(SYS_gettid), SIGUSR1);
    siginfo_t info = { .si_signo = SIGUSR1, .si_code = SI_QUEUE };
    call(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &info);
    call(SYS_rt_tgsigqueueinfo, getpid(), call(SYS_gettid), SIGUSR1, &info);
    call(SYS_sigaltstack, NULL, out(24));
    /* A signal in the midst of calls that wait: the remainder is told. */
    signal(SIGALRM, handler);
    struct itimerval shortly = { { 0, 0 }, { 0, 3000 } };
    struct timespec second = { 1, 0 };
    call(SYS_setitimer, ITIMER_REAL, &shortly, out(32));
    call(SYS_getitimer, ITIMER_REAL, out(32));
    call(SYS_nanosleep, &second, out(16));
    call(SYS_setitimer, ITIMER_REAL, &shortly, NULL);
    call(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &second, out(16));
    struct pollfd nothing = { -1, POLLIN, 0x5a5a };
    call(SYS_setitimer, ITIMER_REAL, &shortly, NULL);
    call(SYS_ppoll, with(&nothing, 8, 8), 1, with(&second, 16, 16), NULL, 8);
    call(SYS_setitimer, ITIMER_REAL, &shortly, NULL);
    call(SYS_pselect6, 0, NULL, NULL, NULL, with(&second, 16, 16), NULL);
    /* Again and again: the first may come before the call. */
    struct itimerval often = { { 0, 3000 }, { 0, 3000 } }, never = { 0 };
    call(SYS_setitimer, ITIMER_REAL, &often, NULL);
    call(SYS_pause);
    call(SYS_setitimer, ITIMER_REAL, &never, NULL);
    /* A stop that is continued makes calls go on as restart_syscall. */
    int parent = getpid();
    if (fork() == 0) {
        usleep(5000);
        kill(parent, SIGCONT);
        usleep(5000);
        _exit(0);
    }
    struct timespec pause = { 0, 30000000 };
    signal(SIGCONT, SIG_DFL);
    call(SYS_nanosleep, &pause, out(16));
    wait(NULL);
}

static void times_and_limits(void)
{
    call(SYS_time, out(8));
    call(SYS_gettimeofday, out(16), out(8));
    call(SYS_times, out(32));
    for (int clock = 0; clock < 4; clock++)
        call(SYS_clock_gettime, clock, out(16));
    call(SYS_clock_getres, 1, out(16));
    call(SYS_adjtimex, with((char[208]){ 0 }, 208, 208));
    call(SYS_clock_adjtime, 0, with((char[208]){ 0 }, 208, 208));
    struct sigevent none = { .sigev_notify = SIGEV_NONE };
    int *timer = out(4);
    call(SYS_timer_create, CLOCK_MONOTONIC, &none, timer);
    struct itimerspec when = { { 1, 0 }, { 100, 0 } };
    call(SYS_timer_settime, *timer, 0, &when, out(32));
    call(SYS_timer_gettime, *timer, out(32));
    call(SYS_timer_getoverrun, *timer);
    call(SYS_timer_delete, *timer);
    call(SYS_alarm, 30);
    call(SYS_getrlimit, RLIMIT_NOFILE, out(16));
    call(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, out(16));
    struct rlimit core = { 0, 0 };
    call(SYS_setrlimit, RLIMIT_CORE, &core);
    call(SYS_getrusage, RUSAGE_SELF, out(144));
    call(SYS_getpriority, 0, 0);
    call(SYS_setpriority, 0, 0, 0);
    call(SYS_sched_getscheduler, 0);
    call(SYS_sched_getparam, 0, out(4));
    call(SYS_sched_setparam, 0, with("\0\0\0", 4, 4));
    call(SYS_sched_setscheduler, 0, 0, with("\0\0\0", 4, 4));
    call(SYS_sched_get_priority_max, 1);
    call(SYS_sched_get_priority_min, 1);
    call(SYS_sched_rr_get_interval, 0, out(16));
    call(SYS_sched_getaffinity, 0, 256, out(256));
    call(SYS_sched_setaffinity, 0, 128, memset(out(128), 0xff, 128));
    unsigned *attributes = out(200);
    call(SYS_sched_getattr, 0, attributes, 200, 0);
    call(SYS_sched_getattr, 0, out(200), 48, 0);
    attributes[0] = 56;
    call(SYS_sched_setattr, 0, attributes, 0);
    call(SYS_sched_setattr, 0, length(20000), 0);
    call(SYS_ioprio_get, 1, 0);
    call(SYS_ioprio_set, 1, 0, 0);
    call(SYS_membarrier, 0, 0, 0);
}

static void options(void)
{
    int to_int[] = { PR_GET_PDEATHSIG, PR_GET_TSC, PR_GET_CHILD_SUBREAPER };
    for (int i = 0; i < 3; i++)
        call(SYS_prctl, to_int[i], out(4), 0, 0, 0);
    int plain[] = { PR_GET_DUMPABLE, PR_GET_KEEPCAPS, PR_GET_TIMING, PR_GET_SECCOMP, PR_GET_SECUREBITS,
                    PR_GET_TIMERSLACK, PR_MCE_KILL_GET, PR_GET_NO_NEW_PRIVS, PR_GET_THP_DISABLE,
                    PR_GET_IO_FLUSHER, 66, 68 };
    for (unsigned i = 0; i < sizeof plain / sizeof *plain; i++)
        call(SYS_prctl, plain[i], 0, 0, 0, 0);
    call(SYS_prctl, PR_SET_NAME, "calls", 0, 0, 0);
    call(SYS_prctl, PR_GET_NAME, out(16), 0, 0, 0);
    call(SYS_prctl, PR_CAPBSET_READ, 0, 0, 0, 0);
    call(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0);
    call(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
    call(SYS_prctl, PR_SET_TIMERSLACK, 0, 0, 0, 0);
    call(SYS_prctl, PR_GET_TID_ADDRESS, out(8), 0, 0, 0);
    call(SYS_prctl, PR_SET_MM, 15, out(4), 0, 0);
    call(SYS_prctl, PR_GET_SPECULATION_CTRL, 0, 0, 0, 0);
    call(SYS_prctl, PR_CAP_AMBIENT, 1, 0, 0, 0);
    call(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0);
    call(SYS_prctl, PR_SCHED_CORE, 0, 0, 0, out(8));
    call(SYS_prctl, 0x41555856, out(600), 600, 0, 0);
    call(SYS_prctl, 0x41555856, out(600), 40, 0, 0);
    call(SYS_prctl, 0x53564d41, 0, pool, 4096, "name");
    call(SYS_prctl, 0x59616d61, 0, 0, 0, 0);
    call(SYS_prctl, 12345, out(64), 0, 0, 0);
    int by_address[] = { 0x1003, 0x1004, 0x1021, 0x1022, 0x1024, 0x4001, 0x4003, 0x5005 };
    for (int i = 0; i < 8; i++)
        call(SYS_arch_prctl, by_address[i], out(8));
    call(SYS_arch_prctl, 0x1011, 0);
    call(SYS_arch_prctl, 0x1001, 0);
    call(SYS_modify_ldt, 1, with((unsigned[4]){ 1, 0, 0, 0x28 }, 16, 16), 16);
    call(SYS_modify_ldt, 0, out(200), 200);
    call(SYS_modify_ldt, 2, out(200), 200);
    call(SYS_seccomp, 3, 0, out(6));
    call(SYS_seccomp, 2, 0, length(0x7fff0000));
    call(444, NULL, 0, 1);
    call(SYS_keyctl, 0, -2, 0);
    long key = call(SYS_add_key, "user", "contraflow", "secret", 6, -2);
    call(SYS_keyctl, 6, key, out(100), 100);
    call(SYS_keyctl, 6, key, out(3), 3);
    call(SYS_keyctl, 11, key, out(100), 100);
    call(SYS_keyctl, 11, key, out(3), 3);
    call(SYS_keyctl, 11, -2, out(100), 100);
    call(SYS_keyctl, 17, key, out(100), 100);
    call(SYS_keyctl, 31, out(20), 20);
    call(SYS_keyctl, 3, key);
}

static void memory(void)
{
    char *page = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(page, 1, 1 << 16);
    call(SYS_mincore, page, 1 << 16, out(100));
    call(SYS_mlock, page, 4096);
    call(SYS_mlock2, page, 4096, 0);
    call(SYS_munlock, page, 4096);
    call(SYS_mlockall, 4);
    call(SYS_munlockall);
    call(SYS_msync, page, 4096, MS_ASYNC);
    call(SYS_madvise, page, 8192, MADV_DONTNEED);
    call(SYS_madvise, page, 8192, MADV_WILLNEED);
    call(SYS_madvise, page, 8192, MADV_FREE);
    call(SYS_mprotect, page, 4096, PROT_READ);
    call(SYS_pkey_mprotect, page, 4096, PROT_READ | PROT_WRITE, -1);
    call(SYS_pkey_alloc, 0, 0);
    page = (char *)call(SYS_mremap, page, 1 << 16, 1 << 17, MREMAP_MAYMOVE);
    call(SYS_get_mempolicy, out(4), out(128), 1024, NULL, 0);
    call(SYS_set_mempolicy, 0, NULL, 0);
    call(SYS_mbind, page, 4096, 0, NULL, 0, 0);
    void *where[2] = { page, page + 8192 };
    call(SYS_move_pages, 0, 2, where, NULL, out(8), 0);
    call(SYS_migrate_pages, 0, 64, with("\1\0\0\0\0\0\0", 8, 8), with("\1\0\0\0\0\0\0", 8, 8));
    struct iovec from[2] = { { page, 30 }, { page + 100, 10 } };
    call(SYS_process_vm_readv, getpid(), vector(10, 100), 2, from, 2, 0);
    call(SYS_process_vm_writev, getpid(), from, 0, from, 0, 0);
    call(SYS_brk, 0);
    void *end = sbrk(0);
    call(SYS_brk, (char *)end + 10000);
    memset(end, 3, 5000);
    call(SYS_brk, (char *)end + 10);
    call(462, page, 4096, 0);
    int pidfd = call(434, getpid(), 0);
    call(440, pidfd, from, 1, MADV_COLD, 0);
    call(424, pidfd, 0, NULL, 0);
    call(438, pidfd, 0, 0);
    close(pidfd);
    call(SYS_userfaultfd, 1);
    call(SYS_io_setup, 1, with("\0\0\0\0\0\0\0", 8, 8));
}

static void *thread(void *robust)
{
    pthread_mutex_lock(robust);
    return NULL;
}

/* Gives pages back again and again. */
static void *giver(void *pages)
{
    for (int i = 0; i < 100; i++) {
        memset(pages, i + 1, 1 << 16);
        madvise(pages, 1 << 16, MADV_DONTNEED);
    }
    return NULL;
}

/* Waits that end while another thread's call replaces memory. */
static void replacement(void)
{
    void *pages = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct timespec shortly = { 0, 100000 };
    int *never = length(0);
    pthread_t id;
    pthread_create(&id, NULL, giver, pages);
    while (pthread_tryjoin_np(id, NULL) != 0)
        call(SYS_futex, never, FUTEX_WAIT, 0, &shortly);
}

static void births(void)
{
    int pid = fork();
    if (pid == 0)
        _exit(3);
    call(SYS_wait4, pid, out(4), 0, out(144));
    call(SYS_wait4, -1, out(4), WNOHANG, out(144));
    call(SYS_waitid, P_ALL, 0, out(128), WEXITED | WNOHANG, out(144));
    if (vfork() == 0)
        _exit(4);
    call(SYS_waitid, P_ALL, 0, out(128), WEXITED, out(144));
    int *parent = out(4), *child = out(4), *pidfd = out(4);
    if (call(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, 0, parent, child, 0) == 0)
        _exit(5);
    call(SYS_wait4, -1, out(4), 0, NULL);
    struct clone_args arguments = { .flags = CLONE_PARENT_SETTID | CLONE_PIDFD, .pidfd = (uint64_t)pidfd,
                                    .parent_tid = (uint64_t)parent, .exit_signal = SIGCHLD };
    if (call(435, &arguments, sizeof arguments) == 0)
        _exit(6);
    call(SYS_waitid, P_PIDFD, *pidfd, out(128), WEXITED, NULL);
    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_t mutex;
    pthread_mutex_init(&mutex, &robust);
    for (int i = 0; i < 3; i++) {
        pthread_t id;
        pthread_create(&id, NULL, thread, &mutex);
        pthread_join(id, NULL);
        pthread_mutex_consistent(&mutex);
        pthread_mutex_unlock(&mutex);
    }
    call(SYS_get_robust_list, 0, out(8), out(8));
    unsigned *word = length(0);
    call(SYS_futex, word, FUTEX_WAKE, 1);
    call(SYS_futex, word, FUTEX_WAKE_OP, 1, 1, word + 1, FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0));
    call(SYS_futex, word, FUTEX_LOCK_PI, 0, NULL);
    call(SYS_futex, word, FUTEX_UNLOCK_PI);
    call(SYS_futex, word, FUTEX_TRYLOCK_PI);
    struct timespec soon = { 0, 1000000 };
    call(SYS_futex, length(0), FUTEX_WAIT, 0, &soon);
    call(SYS_futex, length(0), FUTEX_CMP_REQUEUE, 1, 1, word, 0);
    call(454, word, 1, 1, 2);
    call(SYS_unshare, 0);
    call(SYS_rseq, NULL, 0, 0, 0);
}

static void tracing(void)
{
    /* A child that whoever traces this process does not trace too. */
    int pid = call(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
            _exit(1);
        raise(SIGSTOP);
        for (;;)
            call(SYS_getppid);
    }
    waitpid(pid, NULL, 0);
    call(SYS_ptrace, 0x4200, pid, 0, 1);
    call(SYS_ptrace, 1, pid, pool, out(8));
    call(SYS_ptrace, 2, pid, pool, out(8));
    call(SYS_ptrace, 3, pid, 8, out(8));
    call(SYS_ptrace, 12, pid, 0, out(216));
    call(SYS_ptrace, 14, pid, 0, out(512));
    call(SYS_ptrace, 30, pid, out(8), 0x1003);
    call(SYS_ptrace, 0x4201, pid, 0, out(8));
    call(SYS_ptrace, 0x4202, pid, 0, out(128));
    struct iovec registers = { out(400), 400 };
    call(SYS_ptrace, 0x4204, pid, 1, with(&registers, 16, 16));
    struct { uint64_t offset; uint32_t flags; int32_t count; } peek = { 0, 0, 3 };
    call(SYS_kill, pid, SIGUSR2);
    call(SYS_ptrace, 0x4209, pid, with(&peek, 16, 16), out(3 * 128));
    call(SYS_ptrace, 0x420a, pid, 8, out(8));
    call(SYS_ptrace, 24, pid, 0, 0);
    waitpid(pid, NULL, 0);
    call(SYS_ptrace, 0x420e, pid, 200, out(200));
    call(SYS_ptrace, 0x420e, pid, 10, out(200));
    call(SYS_ptrace, 0x420f, pid, 24, out(24));
    call(SYS_ptrace, 0x4211, pid, 32, out(32));
    call(SYS_ptrace, 5, pid, pool, 1);
    call(SYS_ptrace, 9, pid, 0, 0);
    waitpid(pid, NULL, 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int main(void)
{
    alarm(30);
    identity();
    memory();
    times_and_limits();
    signals();
    options();
    births();
    replacement();
    tracing();
    return 0;
}
