// Prints what the questions of a test must find.
#include <cstdio>

namespace geo {
int scale = 3;
struct Base {
    int kind;
    virtual ~Base() {}
    virtual int area() const = 0;
};
struct Rect : Base {
    int w, h;
    static int made;
    Rect(int a, int b) : w(a), h(b) { kind = a % 2; made++; }
    int area() const override {
        int r = w * h * scale;
        std::printf("%d %d %d %d %d\n", w, h, kind, made, scale); // the line
        return r;
    }
};
int Rect::made = 0;
int same = 1;
} // namespace geo

namespace other {
int same = 2;
}

template <class T> struct Pair {
    T first, second;
    T sum() const { return first + second; }
};

static int look(const geo::Rect &r, Pair<short> p, bool on) { return r.w + p.sum() + on; }

int main() {
    int total = 0;
    for (int i = 0; i < 5; i++) {
        geo::Rect r(i, i + 1);
        total += r.area() + look(r, {short(i), short(-2)}, i > 2);
    }
    return total == 0;
}
