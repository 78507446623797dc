// Messages through eventfds and pipes, with readers that compete for them.
#include "order.h"
#include <poll.h>
#include <sys/eventfd.h>
static int events, pipes[2], rounds;
static volatile long added;

static void *run(void *number)
{
    unsigned long me = (unsigned long)number, value;
    for (int i = 0; i < rounds * 30; i++) {
        if (me % 2 == 0) {
            value = me + 1;
            write(events, &value, 8);
            value = me * 1000 + (unsigned long)i;
            write(pipes[1], &value, 8);
            work(50);
        } else {
            struct pollfd wait[2] = {{events, POLLIN, 0}, {pipes[0], POLLIN, 0}};
            poll(wait, 2, 1);
            if (wait[0].revents && read(events, &value, 8) == 8)
                added += (long)value, note(value);
            if (read(pipes[0], &value, 8) == 8)
                note(value * 8 + me);
        }
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    events = eventfd(0, EFD_NONBLOCK);
    if (pipe(pipes))
        return 1;
    in_threads(6, run);
    return outcome((unsigned long)added);
}
