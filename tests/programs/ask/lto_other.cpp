// The other file of lto.cpp.

static volatile int own = 2;

__attribute__((noinline)) int other(int by)
{
    own += by;
    return own;
}
