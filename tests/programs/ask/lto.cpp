// Variables outside of functions, with a file of its own for the statics of the same name.

namespace space {
extern int counter;
int counter = 42;
}

struct Holder {
    static int member;
};
int Holder::member = 7;

static volatile int own = 1;

int other(int by);

__attribute__((noinline)) int first(int by)
{
    space::counter += by;
    Holder::member += by;
    own += by;
    return space::counter + Holder::member + own;
}

int main(int argc, char **)
{
    return first(argc) + other(argc) == 0;
}
