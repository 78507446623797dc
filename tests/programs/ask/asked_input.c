/* Asks for the flags of its standard input before it reads it. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static char letter;

int main(void)
{
    if (fcntl(0, F_GETFD) != 0 || fcntl(0, F_SETFD, 0) != 0)
        return 1;
    if (read(0, &letter, 1) != 1)
        return 2;
    abort();
}
