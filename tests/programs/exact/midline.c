// Enters a line in its middle.
static volatile int first, second, third;

int main(void) {
    int round = 0;
    first = 1; again: second = round;
    third = 2;
    if (round++ == 0)
        goto again;
    return third;
}
