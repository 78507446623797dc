/* A nested function that is reached through code on the stack, beside a buffer that the kernel
   fills. */
#include <stdio.h>
#include <unistd.h>

static int apply(int (*function)(int), int x)
{
    return function(x);
}

int main(void)
{
    int fds[2], sum = 0, offset = 5;
    char buffer[256];
    if (pipe(fds) != 0)
        return 77;
    int add(int x)
    {
        return x + offset;
    }
    for (int i = 0; i < 4; i++) {
        sum += apply(add, i);
        if (write(fds[1], "hello", 5) != 5 || read(fds[0], buffer + 50 * i, 5) != 5)
            return 1;
        offset += buffer[50 * i];
    }
    printf("sum %d\n", sum);
    return 0;
}
