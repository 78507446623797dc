// Does in C++ what tour.c does in C, with a container, a base class and an exception.

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Value {
    int value;
    virtual ~Value() {}
};

struct Node : Value {
    Node *next;
};

struct Point {
    int x, y;
};

namespace tour {
int total = 0;
int answer = 0;
volatile long spins = 0;

int add(int a, int b) { // add
    int sum = a + b; // begin of add
    total += sum;    // total grows
    return sum;      // end of add
}

Node *push(Node *list, int value) {
    Node *made = new Node;
    made->value = value;
    made->next = list;
    return made; // end of push
}

int depth(int n) {
    if (n == 0)
        return 0; // deepest
    return 1 + depth(n - 1);
}

void work() {
    answer = 42; // in the thread
}

void refuse(const std::string &why) {
    throw std::runtime_error(why); // throws
}
}

int main(int argc, char **argv) {
    Point p = {1, 2};
    Node *list = nullptr;
    std::vector<int> numbers(5);
    for (int i = 0; i < 5; i++) {
        int number = tour::add(i, p.x); // calls add
        numbers[i] = number;            // after add
        list = tour::push(list, number);
    }
    int deep = tour::depth(60);
    std::thread thread(tour::work);
    thread.join();
    try {
        tour::refuse("refused");
    } catch (const std::exception &error) {
        deep += std::strlen(error.what()) - 7; // catches
    }
    std::printf("numbers up to %d, depth %d\n", numbers[4], deep);
    std::fflush(stdout);
    if (argc > 1 && std::strcmp(argv[1], "spin") == 0)
        for (;;)
            tour::spins = tour::spins + 1; // spins
    volatile int *nowhere = nullptr;
    if (argc > 1)
        *nowhere = list->value; // crash
    return 0; // the end
}
