// Workers at one epoll, which sockets wake: edges, levels and single shots.
#include "order.h"
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
static int sockets[6][2], all, rounds;
static _Atomic long received, is_over;

static void *run(void *number)
{
    unsigned long me = (unsigned long)number;
    if (me == 0) {
        for (int i = 0; i < rounds * 40; i++) {
            char bytes[3] = {(char)i, 1, 2};
            send(sockets[i % 6][0], bytes, sizeof bytes, 0);
            if (i % 7 == 0)
                work(2000);
        }
        for (int i = 0; received < rounds * 40 * 3 && i < 2000; i++)
            usleep(100);
        is_over = 1;
        return 0;
    }
    while (!is_over) {
        struct epoll_event happened[2];
        int count = epoll_wait(all, happened, 2, 1);
        for (int i = 0; i < count; i++) {
            int which = happened[i].data.fd;
            char bytes[4];
            long size;
            while ((size = recv(sockets[which][1], bytes, 4, MSG_DONTWAIT)) > 0) {
                received += size;
                note((unsigned long)(bytes[0] * 64 + size * 8) + me);
            }
            if (which % 3 == 2) {
                struct epoll_event again = {EPOLLIN | EPOLLONESHOT, {.fd = which}};
                epoll_ctl(all, EPOLL_CTL_MOD, sockets[which][1], &again);
            }
        }
    }
    return 0;
}

int main(int count, char **args)
{
    rounds = atoi(args[1]);
    all = epoll_create1(0);
    for (int i = 0; i < 6; i++) {
        unsigned kinds[3] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT};
        socketpair(AF_UNIX, SOCK_STREAM, 0, sockets[i]);
        struct epoll_event event = {kinds[i % 3], {.fd = i}};
        epoll_ctl(all, EPOLL_CTL_ADD, sockets[i][1], &event);
    }
    in_threads(4, run);
    return outcome((unsigned long)received);
}
