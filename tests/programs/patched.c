/* Code that is changed past its protection, as a debugger does: through /proc/PID/mem, by the
   program itself, and by a child that it waits for. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline, noclone)) static int value(int more)
{
    return more ? 1001 : 7;
}

/* JE with a short displacement, where the compiler put it. */
static const unsigned char *branch(void)
{
    const unsigned char *code = (const unsigned char *)(void *)value;
    for (int i = 0; i < 32; i++)
        if (code[i] == 0x74)
            return code + i;
    return NULL;
}

static int patch(pid_t pid, const unsigned char *at, const unsigned char *bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int mem = open(path, O_RDWR);
    int done = mem >= 0 && pwrite(mem, bytes, 2, (off_t)at) == 2;
    close(mem);
    return done;
}

int main(void)
{
    const unsigned char *at = branch();
    if (at == NULL)
        return 77;
    /* Two instructions in the place of one, and back. */
    const unsigned char was[] = { at[0], at[1] }, nops[] = { 0x90, 0x90 };
    int sum = value(0);
    int ok = patch(getpid(), at, nops);
    for (int i = 0; i < 3; i++)
        sum += value(0) == 1001;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        _exit(!patch(parent, at, was));
    int status;
    waitpid(child, &status, 0);
    ok = ok && status == 0;
    for (int i = 0; i < 3; i++)
        sum += value(0);
    printf("%s %d\n", ok ? "patched" : "not patched", sum);
    return 0;
}
