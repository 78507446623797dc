// Calls that the cache logs without a stop, some of which fail early or late, and timer signals in
// the midst of them.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long seen, sum;

static void tick(int signal) {
    struct timespec now;
    int before = errno;
    clock_gettime(CLOCK_MONOTONIC, &now);
    seen = seen * 31 + now.tv_nsec;
    errno = before;
}

int main(void) {
    struct sigaction action = {.sa_handler = tick};
    sigaction(SIGALRM, &action, 0);
    struct itimerval period = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &period, 0);
    int fd = open("/proc/self/exe", O_RDONLY);
    static char buf[100000];
    for (int i = 0; i < 600; i++) {
        struct stat st;
        struct timespec now;
        sum += getpid();
        sum = sum * 31 + fstat(fd, &st) + st.st_atime;
        sum = sum * 31 + stat("/nonexistent", &st) + errno;
        clock_gettime(CLOCK_REALTIME, &now);
        sum = sum * 31 + now.tv_nsec;
        sum = sum * 31 + pread(fd, buf, sizeof buf - (i & 1) * 90000, i & 63) + buf[300];
        sum = sum * 31 + readlink("/proc/self/exe", buf, 100) + buf[1];
        if (i % 50 == 0)
            sum = sum * 31 + fstat(fd, (void *)8) + errno;
        // With the direction flag set, nothing is copied upwards.
        long result = 5;
        __asm__ volatile("std; syscall; cld" : "+a"(result) : "D"((long)fd), "S"(&st)
                         : "rcx", "r11", "memory", "cc");
        sum = sum * 31 + result + st.st_size;
        // Numbers of no call.
        result = 0x1000005 + (i & 1) * 0x40fa;
        __asm__ volatile("syscall" : "+a"(result) : "D"((long)fd), "S"(&st)
                         : "rcx", "r11", "memory");
        sum = sum * 31 + result + lseek(fd, i & 7, SEEK_SET);
        // Commands of fcntl(2) that are logged, and others; the kernel takes 32 bits of them.
        struct flock lock = {.l_type = F_RDLCK, .l_pid = i};
        long commands[] = {F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_GETLK,
                           F_SETLK, 11, 0x700000001, 0x10001, 99};
        for (unsigned c = 0; c < sizeof commands / sizeof *commands; c++) {
            long argument = c < 6 ? 3 : (long)&lock;
            result = SYS_fcntl;
            __asm__ volatile("syscall" : "+a"(result) : "D"((long)fd), "S"(commands[c]), "d"(argument)
                             : "rcx", "r11", "memory");
            sum = sum * 31 + result + lock.l_type + lock.l_pid;
            if (c == 0 || c == 5)
                close(result);
        }
    }
}
