// Buffers of system calls that begin in memory of the program's own and go on in memory that it shares
// with another process.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static char *page_at(char *at, int flags)
{
    return mmap(at, PAGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

int main(void)
{
    char *memory = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page_at(memory, MAP_PRIVATE);
    char *shared = page_at(memory + PAGE, MAP_SHARED);
    page_at(memory + 2 * PAGE, MAP_PRIVATE);
    int go[2], done[2], pipe_[2];
    pipe(go);
    pipe(done);
    pipe(pipe_);
    char byte = 0;
    if (!fork()) {
        close(go[1]);
        for (int round = 1; read(go[0], &byte, 1) == 1; round++) {
            memset(shared, round, 100);
            write(done[1], &byte, 1);
        }
        _exit(0);
    }
    for (int round = 0; round < 3; round++) {
        write(go[1], &byte, 1);
        read(done[0], &byte, 1);
        printf("%d", shared[50]);
        long written = write(pipe_[1], shared - 1000, 2000);
        memset(shared, 40 + round, 200);
        long got = read(pipe_[0], shared - 500, 2000);
        printf(" %ld %ld %d %d", written, got, shared[600], shared[1200]);
        printf(" %d\n", mlock(memory, 3 * PAGE));
    }
    close(go[1]);
    wait(NULL);
    return 0;
}
