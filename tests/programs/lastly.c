/* Ends with threads that wait: by its first thread, by another one, by one whose fault it is, by
 * one that executes a program, or by one that has outlived the first thread. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int waiting;
static volatile int known_at_the_end;
static const char *way;

static void *waits(void *unused)
{
    (void)unused;
    __sync_fetch_and_add(&waiting, 1);
    for (;;)
        pause();
}

static void *ends_all(void *unused)
{
    (void)unused;
    while (waiting < 3)
        usleep(1000);
    known_at_the_end = 4711;
    if (!strcmp(way, "alone")) {
        /* By now the first thread is gone. */
        usleep(100000);
        void *library = dlopen("libm.so.6", RTLD_NOW);
        double (*cosine)(double) = (double (*)(double))dlsym(library, "cos");
        printf("%f\n", cosine(1));
        fflush(stdout);
    }
    if (!strcmp(way, "crash"))
        *(volatile int *)0 = 1;
    if (!strcmp(way, "exec"))
        execl("/bin/echo", "echo", "executed", (char *)NULL);
    exit(3);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    way = argc > 1 ? argv[1] : "first";
    for (int i = 0; i < 3; i++)
        pthread_create(&thread, NULL, waits, NULL);
    if (!strcmp(way, "first"))
        ends_all(NULL);
    pthread_create(&thread, NULL, ends_all, NULL);
    if (!strcmp(way, "alone"))
        pthread_exit(NULL);
    pthread_join(thread, NULL);
    return 1;
}
