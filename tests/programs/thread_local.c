// Thread-local variables of the program and of a library that is loaded later, which the second
// thread uses after its first stop only. argv[1]: the library.
#include <dlfcn.h>
#include <pthread.h>

static __thread int mine = 7;
static __thread long row[4] = {1, 2, 3, 4};

__attribute__((noinline)) static void stop(int add) {
    mine += add;
    row[1] = add;
}

static void *run(void *set) {
    mine = 70;
    stop(1);
    ((void (*)(int)) set)(5);
    stop(2);
    return 0;
}

int main(int argc, char **argv) {
    stop(argc);
    void *library = dlopen(argv[1], RTLD_NOW);
    void (*set)(int) = (void (*)(int)) dlsym(library, "set");
    set(42);
    pthread_t thread;
    pthread_create(&thread, 0, run, (void *) set);
    pthread_join(thread, 0);
    stop(4);
    __builtin_trap();
}
