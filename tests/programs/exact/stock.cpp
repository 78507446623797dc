// A shelf of a shop. A reference into a vector is kept while the vector grows, so what is delivered first
// goes to memory that nobody reads any more; an exception ends the program when it is sold.
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Item {
    std::string name;
    int count = 0;
};

struct Shelf {
    std::vector<Item> items;

    Item &find(const std::string &name) {
        for (auto &item : items)
            if (item.name == name)
                return item;
        items.push_back(Item{name, 0});
        return items.back();
    }
};

static void deliver(Shelf &shelf, const std::string &name, int count) {
    Item &item = shelf.find(name);
    Item &box = shelf.find("box of " + name);
    item.count += count;
    box.count += 1;
}

static void sell(Shelf &shelf, const std::string &name, int count) {
    Item &item = shelf.find(name);
    if (item.count < count)
        throw std::runtime_error("no more " + name);
    item.count -= count;
}

int main() {
    auto shelf = std::make_unique<Shelf>();
    std::map<std::string, int> delivered = {{"apples", 3}, {"pears", 5}, {"plums", 9}};
    for (auto &[name, count] : delivered)
        deliver(*shelf, name, count);
    for (auto &[name, count] : delivered)
        sell(*shelf, name, count);
    std::puts("sold");
}
