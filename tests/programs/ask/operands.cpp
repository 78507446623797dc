// References and arrays as operands of expressions.

static int table[4] = {5, 6, 7, 8};
static int grid[2][3] = {{1, 2, 3}, {4, 5, 6}};

struct Holder {
    int &inner;
    int row[2];
};

struct Shared {
    int shared = 11;
    virtual ~Shared() {}
};

struct Left : virtual Shared {
    int left = 12;
};

typedef __float128 Quad;
typedef long double Wider;

struct Wide : Left {
    int wide = 13;
    unsigned __int128 ones = ~(unsigned __int128)0;
    unsigned __int128 one = 1;
    long double huge = 1e4000L;
    long double quarter = 0.25L;
    Quad quad = 1.25;
    Wider wider = 1.25L;
};

static Wide wide;

__attribute__((noinline)) static int sum(int *&p, int (&a)[3], int &r, Holder h)
{
    int *second = &table[1];
    return p[1] + a[1] + r + h.inner + *second; // the line
}

int main()
{
    int a[3] = {10, 20, 30}, r = 7;
    int *p = a;
    Holder h = {r, {8, 9}};
    return sum(p, a, r, h) + grid[1][2] == 0;
}
