// Executes the program that its argument names.
#include <unistd.h>

int main(int count, char **arguments) {
    return count < 2 ? 2 : execv(arguments[1], arguments + 1);
}
