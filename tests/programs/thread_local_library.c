// The library of thread_local.c.
static __thread int of_library = 11;
__thread int visible = 12;

void set(int value) {
    of_library = value;
    visible = value + 1;
}
