// Lines to step back over: calls, a recursion, a loop on one line.
static int sum;
static int inner(int x) {
    int y = x * 2;
    return y + 1;
}
static int outer(int n) {
    int r = inner(n);
    r += inner(n + 1);
    if (n > 0)
        r += outer(n - 1);
    return r;
}
void last(void) {
}
int main(void) {
    sum = outer(1);
    for (int i = 0; i < 5; i++) sum += i;
    last();
    return 0;
}
