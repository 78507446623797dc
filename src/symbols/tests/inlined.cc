#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace shapes {

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
};

template <typename Number> struct Rectangle : Shape {
    Number width, height;
    Rectangle(Number w, Number h) : width(w), height(h) {}
    double area() const override { return double(width) * double(height); }
};

namespace {
double total(const std::vector<Shape *> &all)
{
    double sum = 0;
    for (auto *shape : all)
        sum += shape->area();
    return sum;
}
}

}

bool smaller(shapes::Shape *a, shapes::Shape *b)
{
    return a->area() < b->area();
}

int main(int argc, char **argv)
{
    std::vector<shapes::Shape *> all;
    for (int i = 0; i < argc + 3; i++)
        all.push_back(new shapes::Rectangle<int>(i, argc));
    all.push_back(new shapes::Rectangle<float>(1.5f, 2));
    std::sort(all.begin(), all.end(), smaller);
    std::printf("%f %s\n", shapes::total(all), std::string(argv[0]).c_str());
    for (auto *shape : all)
        delete shape;
}
