// A file that is mapped twice, and written through either mapping and by calls; a ring buffer whose
// end is its beginning; memory of System V.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>
#define BOTH (PROT_READ | PROT_WRITE)

static void file(void) {
    char name[] = "/tmp/viewsXXXXXX", read_back[16];
    int fd = mkstemp(name);
    unlink(name);
    ftruncate(fd, 8192);
    char *one = mmap(0, 8192, BOTH, MAP_SHARED, fd, 0),
         *other = mmap(0, 8192, PROT_READ, MAP_SHARED, fd, 0);
    strcpy(one, "alias");
    pwrite(fd, "written", 8, 100);
    pread(fd, read_back, 6, 0);
    printf("%s %s %s %s\n", other, one + 100, other + 100, read_back);
    // No call comes between a write and the read of it through the other mapping.
    for (volatile int i = 0; i < 1000; i++)
        one[i % 50 + 200] += other[i % 50 + 200] + 1;
    printf("%d\n", other[210]);
    munmap(one, 8192);
    one = mmap(0, 4096, BOTH, MAP_SHARED, fd, 0);
    one[1] = '!';
    printf("%s\n", other);
}

static void ring(void) {
    int fd = memfd_create("ring", 0);
    ftruncate(fd, 4096);
    char *ring = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mmap(ring, 4096, BOTH, MAP_SHARED | MAP_FIXED, fd, 0);
    mmap(ring + 4096, 4096, BOTH, MAP_SHARED | MAP_FIXED, fd, 0);
    memcpy(ring + 4090, "ring buffer", 12);
    printf("%.6s %.6s\n", ring, ring + 4096);
}

static void segment(void) {
    int id = shmget(IPC_PRIVATE, 8192, 0600);
    char *at = shmat(id, 0, 0);
    strcpy(at, "segment");
    shmdt(at);
    at = shmat(id, 0, 0);
    puts(at);
    shmctl(id, IPC_RMID, 0);
}

int main(void) {
    file();
    ring();
    segment();
    return 0;
}
