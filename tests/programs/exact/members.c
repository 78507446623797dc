// Accesses to one member of a structure after the other.
volatile struct { int first, second; } pair;

int main(void) {
    pair.first = 1;
    pair.second = 2;
    return pair.second - 2;
}
