// GS, and threads and children that are made without the C library.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <linux/futex.h>
#include <asm/prctl.h>
#include <signal.h>
#include <sys/wait.h>
static volatile int ctid, ptid;
static volatile int x;

static int f(void *a) {
    x = 5;
    for (volatile int i = 0; i < 100000; i++)
        ;
    return 0;
}

int main() {
    static char st[65536] __attribute__((aligned(16)));
    unsigned long g = 0;
    static long area[4] = {77};
    syscall(SYS_arch_prctl, ARCH_SET_GS, area);
    long v;
    __asm__("movq %%gs:0,%0" : "=r"(v));
    syscall(SYS_arch_prctl, ARCH_GET_GS, &g);
    printf("%ld %d\n", v, g == (unsigned long)area);
    ctid = 1;
    int t = clone(f, st + sizeof st,
                  CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                      CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID,
                  0, &ptid, 0, &ctid);
    while (ctid)
        syscall(SYS_futex, &ctid, FUTEX_WAIT, t, 0);
    printf("%d %d\n", x, ptid == t);
    int c = clone(f, st + sizeof st, SIGCHLD, 0);
    waitpid(c, 0, 0);
    c = clone(f, st + sizeof st, CLONE_VM | CLONE_VFORK | SIGCHLD, 0);
    x = 0;
    waitpid(c, 0, 0);
    printf("%d\n", x);
    return 0;
}
