// A library in namespaces of its own (dlmopen(3)), each of which has its state.
#ifdef LIBRARY

int state;

int bump(int n) {
    state += n;
    return state;
}

#else
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int total = 0;
    for (int n = 5; n < 7; n++) {
        void *library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
        if (!library)
            return puts(dlerror());
        int (*bump)(int) = (int (*)(int))dlsym(library, "bump");
        total = total * 10 + bump(n);
    }
    printf("%d\n", total);
    return argc > 2;
}
#endif
