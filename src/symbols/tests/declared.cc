// A variable with a declaration in a namespace, beside a type that is worth sharing by dwz.
namespace space {
extern int counter;
struct Large {
    int a;
    long b;
    char *c;
    double d;
    struct Inner {
        int x, y, z;
    } inner;
    int f(int);
    int g(long);
};
}

int space::counter = 7;

int main(int count, char **)
{
    space::Large large;
    large.a = count;
    space::counter += large.a;
    return space::counter == 0;
}
