/* Sockets, messages, and the objects of System V and POSIX, by as many calls as there are. */
#include "calls.h"
#include <linux/filter.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/un.h>

static struct sockaddr_in local(int port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port),
                                 .sin_addr = { htonl(INADDR_LOOPBACK) } };
}

/* A header with room for name and control data. */
static struct msghdr *header(void)
{
    struct msghdr message = { out(128), 128, vector(3, 100), 2, out(200), 200, 0x5a5a5a5a };
    return with(&message, sizeof message, sizeof message);
}

static void streams(void)
{
    struct sockaddr_in address = local(0);
    socklen_t size = sizeof address;
    int listener = call(SYS_socket, AF_INET, SOCK_STREAM, 0);
    call(SYS_bind, listener, &address, sizeof address);
    call(SYS_listen, listener, 5);
    getsockname(listener, (void *)&address, &size);
    call(SYS_getsockname, listener, out(128), length(128));
    call(SYS_getsockname, listener, out(128), length(5));
    call(SYS_getsockname, listener, out(128), length(0));
    int client = socket(AF_INET, SOCK_STREAM, 0);
    call(SYS_connect, client, &address, sizeof address);
    int server = call(SYS_accept, listener, out(128), length(128));
    int client2 = socket(AF_INET, SOCK_STREAM, 0);
    connect(client2, (void *)&address, sizeof address);
    call(SYS_accept4, listener, out(128), length(10), 0);
    call(SYS_getpeername, client, out(128), length(128));
    call(SYS_getpeername, listener, out(128), length(128));
    call(SYS_sendto, client, "bytes of a stream", 17, 0, NULL, 0);
    call(SYS_ioctl, server, 0x541b, out(4));
    call(SYS_recvfrom, server, out(5), 5, 0, out(128), length(128));
    call(SYS_recvfrom, server, out(100), 100, 0, NULL, NULL);
    call(SYS_recvfrom, server, out(100), 100, MSG_DONTWAIT, out(128), length(128));
    for (int option = 1; option < 80; option++) {
        call(SYS_getsockopt, server, SOL_SOCKET, option, out(200), length(200));
        call(SYS_getsockopt, server, IPPROTO_TCP, option == 35 ? 1 : option, out(300), length(300));
        call(SYS_getsockopt, server, SOL_SOCKET, option, out(200), length(2));
    }
    for (int option = 1; option < 52; option++)
        call(SYS_getsockopt, server, IPPROTO_IP, option, out(200), length(200));
    call(SYS_setsockopt, server, SOL_SOCKET, SO_KEEPALIVE, length(1), 4);
    struct sock_filter accept_all[2] = { { 0, 0, 0, 0 }, { 6, 0, 0, 0xffff } };
    accept_all[0].code = 0x20;
    struct sock_fprog program = { 2, accept_all };
    call(SYS_setsockopt, server, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
    call(SYS_getsockopt, server, SOL_SOCKET, SO_GET_FILTER, out(200), length(20));
    call(SYS_getsockopt, server, SOL_SOCKET, SO_GET_FILTER, out(200), length(0));
    call(SYS_getsockopt, -1, SOL_SOCKET, SO_TYPE, out(4), length(4));
    call(SYS_shutdown, client, SHUT_RDWR);
    int requests[] = { 0x8903, 0x8904, 0x8905, 0x8906, 0x8907, 0x5411, 0x894b };
    for (int i = 0; i < 7; i++)
        call(SYS_ioctl, server, requests[i], out(16));
}

static void interfaces(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq lo = { 0 };
    strcpy(lo.ifr_name, "lo");
    int requests[] = { 0x8913, 0x8915, 0x8917, 0x8919, 0x891b, 0x891d, 0x8921, 0x8927, 0x8933,
                       0x8942, 0x8970, 0x8947, 0x8938, 0x891f, 0x8b01 };
    for (unsigned i = 0; i < sizeof requests / sizeof *requests; i++)
        call(SYS_ioctl, fd, requests[i], with(lo.ifr_name, 5, 40));
    struct ifreq first = { .ifr_ifindex = 1 };
    call(SYS_ioctl, fd, 0x8910, with(&first, 40, 40));
    struct ifconf all = { 400, { out(400) } }, few = { 50, { out(50) } }, none = { 0, { NULL } };
    call(SYS_ioctl, fd, 0x8912, with(&all, 16, 16));
    call(SYS_ioctl, fd, 0x8912, with(&few, 16, 16));
    call(SYS_ioctl, fd, 0x8912, with(&none, 16, 16));
    call(SYS_ioctl, fd, 0x8946, with(&lo, 40, 40));
    struct { char address[64]; char name[16]; } arp = { 0 };
    *(struct sockaddr_in *)arp.address = local(0);
    call(SYS_ioctl, fd, 0x8954, with(&arp, 68, 68));
}

static void datagrams(void)
{
    int pair[2];
    call(SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, out(8));
    call(SYS_socketpair, 77, SOCK_DGRAM, 0, out(8));
    call(SYS_socketpair, AF_INET, SOCK_DGRAM, 0, out(8));
    call(SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, pair);
    struct sockaddr_un name = { AF_UNIX, "\0contraflow-calls" };
    name.sun_path[17] = '0' + getpid() % 10;
    bind(pair[0], (void *)&name, 2 + 18);
    setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &(int){ 1 }, 4);
    setsockopt(pair[1], SOL_SOCKET, SO_TIMESTAMP, &(int){ 1 }, 4);
    char room[CMSG_SPACE(sizeof(int))];
    struct iovec part = { "a datagram of some size", 23 };
    struct msghdr sent = { NULL, 0, &part, 1, room, sizeof room, 0 };
    struct cmsghdr *control = CMSG_FIRSTHDR(&sent);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    *(int *)CMSG_DATA(control) = 1;
    call(SYS_sendmsg, pair[0], &sent, 0);
    call(SYS_recvmsg, pair[1], header(), 0);
    call(SYS_sendmsg, pair[0], &sent, 0);
    struct msghdr *narrow = header();
    narrow->msg_iov[1].iov_len = 4;
    narrow->msg_namelen = 3;
    narrow->msg_controllen = 20;
    call(SYS_recvmsg, pair[1], narrow, 0);
    call(SYS_recvmsg, pair[1], header(), MSG_DONTWAIT);
    sent.msg_control = NULL;
    sent.msg_controllen = 0;
    struct mmsghdr several[3] = { { sent, 0x5a5a }, { sent, 0x5a5a }, { sent, 0x5a5a } };
    call(SYS_sendmmsg, pair[0], with(several, sizeof several, sizeof several), 3, 0);
    struct mmsghdr received[5];
    for (int i = 0; i < 5; i++)
        received[i] = (struct mmsghdr){ *header(), 0x5a5a5a5a };
    struct timespec soon = { 0, 1000000 };
    call(SYS_recvmmsg, pair[1], with(received, sizeof received, sizeof received), 5, MSG_DONTWAIT, NULL);
    call(SYS_sendmmsg, pair[0], several, 2, 0);
    call(SYS_recvmmsg, pair[1], with(received, sizeof received, sizeof received), 2, 0, with(&soon, 16, 16));
    call(SYS_sendto, pair[0], "longer than the buffer", 22, 0, NULL, 0);
    call(SYS_recvfrom, pair[1], out(4), 4, MSG_TRUNC, out(128), length(128));
    struct sockaddr_in address = local(0);
    socklen_t size = sizeof address;
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    bind(udp, (void *)&address, size);
    getsockname(udp, (void *)&address, &size);
    setsockopt(udp, IPPROTO_IP, 8, &(int){ 1 }, 4);
    setsockopt(udp, IPPROTO_IP, 13, &(int){ 1 }, 4);
    setsockopt(udp, SOL_SOCKET, SO_TIMESTAMPNS, &(int){ 1 }, 4);
    sendto(udp, "to itself", 9, 0, (void *)&address, size);
    call(SYS_recvmsg, udp, header(), 0);
    sendto(udp, "to itself", 9, 0, (void *)&address, size);
    call(SYS_recvfrom, udp, out(100), 100, 0, out(128), length(7));
    int netlink = socket(AF_NETLINK, SOCK_RAW, 0);
    struct { unsigned size; unsigned short type, flags; unsigned number, pid; char family; } dump =
        { 17, 18, 0x301, 1, 0, 0 };
    send(netlink, &dump, sizeof dump, 0);
    call(SYS_recvmsg, netlink, header(), 0);
    call(SYS_recvfrom, netlink, out(4000), 4000, MSG_DONTWAIT, out(128), length(128));
}

static void objects(void)
{
    int queue = call(SYS_msgget, IPC_PRIVATE, 0600);
    struct { long type; char text[20]; } message = { 7, "text of a message" };
    call(SYS_msgsnd, queue, &message, 17, 0);
    call(SYS_msgctl, queue, IPC_STAT, out(120));
    call(SYS_msgrcv, queue, out(100), 50, 0, 0);
    call(SYS_msgsnd, queue, &message, 17, 0);
    call(SYS_msgrcv, queue, out(100), 5, 0, 0);
    call(SYS_msgrcv, queue, out(100), 5, 0, 010000);
    call(SYS_msgrcv, queue, out(100), 5, 0, IPC_NOWAIT);
    call(SYS_msgctl, 0, 3, out(32));
    call(SYS_msgctl, 0, 12, out(32));
    for (int i = 0; i < 20; i++) {
        call(SYS_msgctl, i, 11, out(120));
        call(SYS_msgctl, i, 13, out(120));
    }
    call(SYS_msgctl, queue, IPC_RMID, 0);
    int semaphores = call(SYS_semget, IPC_PRIVATE, 5, 0600);
    call(SYS_semctl, semaphores, 0, 2, out(104));
    call(SYS_semctl, semaphores, 0, 3, out(40));
    call(SYS_semctl, semaphores, 0, 19, out(40));
    call(SYS_semctl, semaphores, 0, 13, out(10));
    call(SYS_semctl, semaphores, 0, 17, with("\1\0\2\0\3\0\4\0\5", 10, 10));
    for (int command = 11; command < 17; command++)
        if (command != 13)
            call(SYS_semctl, semaphores, 1, command, 1);
    for (int i = 0; i < 20; i++) {
        call(SYS_semctl, i, 0, 18, out(104));
        call(SYS_semctl, i, 0, 20, out(104));
    }
    struct sembuf change = { 0, 1, 0 };
    call(SYS_semop, semaphores, &change, 1);
    call(SYS_semtimedop, semaphores, &change, 1, NULL);
    call(SYS_semctl, semaphores, 0, 0, 0);
    int segment = call(SYS_shmget, IPC_PRIVATE, 10000, 0600);
    void *at = (void *)call(SYS_shmat, segment, NULL, 0);
    call(SYS_shmctl, segment, 2, out(112));
    call(SYS_shmctl, 0, 3, out(72));
    call(SYS_shmctl, 0, 14, out(48));
    for (int i = 0; i < 20; i++) {
        call(SYS_shmctl, i, 13, out(112));
        call(SYS_shmctl, i, 15, out(112));
    }
    call(SYS_shmctl, segment, 11, 0);
    call(SYS_shmctl, segment, 12, 0);
    call(SYS_shmdt, at);
    call(SYS_shmctl, segment, 0, 0);
    struct mq_attr attributes = { 0, 5, 100, 0 };
    int posix = call(SYS_mq_open, "contraflow-calls", O_CREAT | O_RDWR, 0600, &attributes);
    call(SYS_mq_timedsend, posix, "message", 7, 3, NULL);
    call(SYS_mq_timedreceive, posix, out(200), 200, out(4), NULL);
    call(SYS_mq_getsetattr, posix, NULL, out(64));
    call(SYS_mq_notify, posix, NULL);
    call(SYS_mq_unlink, "contraflow-calls");
}

int main(void)
{
    alarm(30);
    streams();
    interfaces();
    datagrams();
    objects();
    return 0;
}
