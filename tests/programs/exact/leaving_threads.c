// The process ends while its threads compute, wait and read.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <stdlib.h>

static void *spin(void *a) {
    for (volatile long i = 0;; i++)
        ;
    return a;
}

static void *block(void *a) {
    pause();
    return a;
}

static void *rd(void *a) {
    int p[2];
    pipe(p);
    char c;
    read(p[0], &c, 1);
    return a;
}

int main() {
    pthread_t t;
    for (int i = 0; i < 3; i++) {
        pthread_create(&t, 0, spin, 0);
        pthread_create(&t, 0, block, 0);
        pthread_create(&t, 0, rd, 0);
    }
    usleep(20000);
    puts("exit");
    exit(4);
}
