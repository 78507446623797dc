// A thread that ends, or executes a program, while its debugger lets no other one run.

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static char **command;

__attribute__((noinline)) static void *leave(void *unused) {
    if (command[0])
        execv(command[0], command);
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    (void)argc;
    command = argv + 1;
    pthread_create(&thread, NULL, leave, NULL);
    pthread_join(thread, NULL);
    return 7;
}
