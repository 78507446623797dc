/* Filters its own system calls, strictly or by a program that kills all calls but a few, and goes
   on: what is not translated yet, and a call that is allowed; or one that is not. */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(const char *text)
{
    syscall(SYS_write, 1, text, strlen(text));
}

static void filter(void)
{
#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), \
                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write),
        ALLOW(SYS_exit),
        ALLOW(SYS_futex),
        ALLOW(SYS_exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        _exit(9);
}


int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "strict";
    say("before\n");
    if (!strcmp(mode, "strict")) {
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    } else {
        filter();
    }
    char text[] = "x\n";
    /* Not executed before. */
    text[0] = (char)('a' + strtol("7", NULL, 10) + (int)strcspn("after", "t"));
    say(text);
    if (!strcmp(mode, "bad"))
        syscall(SYS_getpid);
    syscall(SYS_exit, 3);
}
