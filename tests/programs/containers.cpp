// Aborts with values that nobody reads without pretty-printers.

#include <cstdlib>
#include <string>
#include <vector>

int main()
{
    std::string name = "hello";
    std::vector<int> numbers{1, 2, 3};
    abort();
}
