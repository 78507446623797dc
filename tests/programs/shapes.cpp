// Containers, a class with a virtual table, an inlined function, a thread and an exception.

#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Base {
    virtual ~Base() {}
    int base_number = 1;
};

struct Derived : Base {
    int own_number = 2;
    std::string name = "derived";
};

namespace counters { int calls = 7; }

static int work(std::vector<int> &numbers, std::map<std::string, int> &ages, Base *shape, int &out)
{
    int sum = 0;
    for (int n : numbers)
        sum += n; // adding
    ages["zoe"] = sum;
    out = sum;
    counters::calls++;
    if (sum > 10)
        throw std::runtime_error("too large"); // throwing
    return sum;
}

static inline __attribute__((always_inline)) int twice(int x)
{
    int y = x * 2;
    return y; // inlined
}

int main()
{
    std::vector<int> numbers{1, 2, 3, 4, 5};
    std::vector<int> many(20000, 6);
    std::map<std::string, int> ages{{"ann", 30}, {"bob", 40}};
    std::unique_ptr<Base> shape = std::make_unique<Derived>();
    int result = 0;
    int doubled = twice(numbers[1]);
    std::thread other([&] {
        result = doubled + 1; // in the thread
    });
    other.join();
    try {
        work(numbers, ages, shape.get(), result);
    } catch (const std::exception &error) {
        puts(error.what());
    }
    return many.empty();
}
