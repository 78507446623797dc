/* Threads that look at buffers which the kernel fills for other threads: by read, poll, recvfrom,
   accept, epoll_wait, wait4, with handlers and restarts. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 60, BYTES = 64 };

static int there[2], back[2], pair[2];
static volatile char bytes[BYTES];
static volatile struct pollfd polled;
static volatile struct epoll_event event;
static volatile int status;
static unsigned long sum = 14695981039346656037UL;
static volatile int handled;

static void mix(unsigned long value) {
    sum = (sum ^ value) * 1099511628211UL;
}

static void handler(int number) {
    handled += number;
}

/* Counts until the kernel has written, and mixes the count. */
static void spin(volatile char *byte) {
    unsigned long count = 0;
    while (!*byte && count < 100000)
        count++;
    mix(count);
    mix((unsigned long) *byte);
}

static void *fill(void *unused) {
    int queue = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = 7};
    epoll_ctl(queue, EPOLL_CTL_ADD, there[0], &wanted);
    for (int i = 0; i < ROUNDS; i++) {
        bytes[0] = 0;
        polled = (struct pollfd) {there[0], POLLIN, 0};
        event.events = 0;
        status = 0;
        write(back[1], "r", 1);
        switch (i % 5) {
        case 0:
            break;
        case 1:
            while (poll((struct pollfd *) &polled, 1, 5000) < 0 && errno == EINTR)
                ;
            break;
        case 2:
            while (epoll_wait(queue, (struct epoll_event *) &event, 1, 5000) < 0 && errno == EINTR)
                ;
            break;
        case 3: {
            pid_t child = fork();
            if (child == 0)
                _exit(3);
            while (waitpid(child, (int *) &status, 0) < 0 && errno == EINTR)
                ;
            break;
        }
        case 4: {
            socklen_t size = 0;
            recvfrom(pair[0], (char *) bytes, BYTES, 0, NULL, &size);
            break;
        }
        }
        if (i % 5 != 4)
            read(there[0], (char *) bytes, BYTES);
        write(back[1], "d", 1);
    }
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    pipe(there);
    pipe(back);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    pthread_t thread;
    pthread_create(&thread, NULL, fill, NULL);
    char got, message[BYTES];
    for (int i = 0; i < ROUNDS; i++) {
        read(back[0], &got, 1);
        usleep(300);
        if (i % 3 == 0)
            pthread_kill(thread, SIGUSR1);
        if (i % 4 == 0)
            usleep(100);
        memset(message, i + 1, sizeof message);
        write(i % 5 == 4 ? pair[1] : there[1], message, sizeof message);
        if (i % 5 == 1)
            spin((volatile char *) &polled.revents);
        if (i % 5 == 2)
            spin((volatile char *) &event.events);
        spin(bytes);
        mix((unsigned long) bytes[BYTES - 1]);
        read(back[0], &got, 1);
    }
    pthread_join(thread, NULL);
    fprintf(stderr, "%lx\n", sum);
    puts("filled");
    return handled == 0;
}
