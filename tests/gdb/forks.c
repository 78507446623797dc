// A child with memory of its own, one that shares its parent's and executes a program, one that
// shares it and ends; and a child that nothing but its system call makes.
#include <sys/wait.h>
#include <unistd.h>

static volatile int n;

__attribute__((noinline)) static void in_child(int how) {
    n += how;
    if (how == 2)
        execl("/bin/true", "true", (char *)0);
    _exit(how);
}

__attribute__((noinline)) static void in_parent(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    n += WEXITSTATUS(status) * 10;
}

__attribute__((noinline)) static long plain_fork(void) {
    long result = 57;
    __asm__ volatile("fork_here: syscall\n\tnop\n\tclc\n\tcld" : "+a"(result) : : "rcx", "r11", "memory");
    return result;
}

int main(void) {
    pid_t child = fork();
    if (child == 0)
        in_child(1);
    in_parent(child);
    child = vfork();
    if (child == 0)
        in_child(2);
    in_parent(child);
    child = vfork();
    if (child == 0)
        in_child(4);
    in_parent(child);
    child = plain_fork();
    if (child == 0)
        in_child(8);
    in_parent(child);
    return 0;
}
