// Many functions, called in turn.
static volatile int n;

#define FUNCTION(name) \
    __attribute__((noinline)) static void name(void) { \
        n++; \
    }
#define TEN(name) \
    FUNCTION(name##0) FUNCTION(name##1) FUNCTION(name##2) FUNCTION(name##3) FUNCTION(name##4) \
    FUNCTION(name##5) FUNCTION(name##6) FUNCTION(name##7) FUNCTION(name##8) FUNCTION(name##9)
#define CALLS(name) \
    name##0(), name##1(), name##2(), name##3(), name##4(), name##5(), name##6(), name##7(), \
        name##8(), name##9();

TEN(a)
TEN(b)
TEN(c)
TEN(d)
TEN(e)

int main(void) {
    for (int i = 0; i < 20; i++) {
        CALLS(a)
        CALLS(b)
        CALLS(c)
        CALLS(d)
        CALLS(e)
    }
    return n != 1000;
}
