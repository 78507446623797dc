/* The process ends while its threads do what a recorder looks at: they map code, change it, run it
   for the first time, and come and go. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*function)(void);

static void *map(void *unused)
{
    unsigned char template[] = { 0xb8, 1, 0, 0, 0, 0xc3 };      /* mov $1,%eax; ret */
    (void)unused;
    for (;;) {
        unsigned char *code = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (unsigned char i = 0; i < 4; i++) {
            template[1] = i;
            memcpy(code + 4000, template, sizeof template);
            if (((function)(code + 4000))() != i)
                _exit(1);
        }
        mprotect(code, 8192, PROT_READ);
        munmap(code, 8192);
    }
    return NULL;
}

static void *nothing(void *unused)
{
    return unused;
}

static void *create(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) == 0)
            pthread_join(thread, NULL);
    }
    return NULL;
}

int main(void)
{
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, map, NULL);
        pthread_create(&thread, NULL, create, NULL);
    }
    usleep(60000);
    _exit(7);
}
