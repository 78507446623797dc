/* With an argument: changes its own code by /proc/self/mem and forks, and the child executes the
   changed code. Without one: changes nothing. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline, noclone, aligned(4096))) int value(void)
{
    return 0x11;
}

__attribute__((aligned(4096))) int main(int argc, char **argv)
{
    int (*volatile get)(void) = value;
    printf("%#x\n", get());
    fflush(stdout);
    if (argc == 1 || argv[1][0] == '\0')
        return 0;
    unsigned char *code = (unsigned char *)value;
    int memory = open("/proc/self/mem", O_RDWR);
    if (pwrite(memory, "\x22", 1, (off_t)memchr(code, 0x11, 32)) != 1)
        perror("/proc/self/mem");
    close(memory);
    if (fork() == 0) {
        printf("child %#x\n", get());
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    printf("parent %#x\n", get());
    return 0;
}
