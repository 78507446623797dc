// Bugs whose effect comes long after their cause: argument 1 says which.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct node {
    struct node *next;
    int value;
    void (*call)(int);
};

static struct node *kept;
static char *buffers[60];
static int counter;
static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void show(int value) { printf("%d\n", value); }

static struct node *make(int value) {
    struct node *node = malloc(sizeof *node);
    *node = (struct node){NULL, value, show};
    return node;
}

static void scribble(struct node *node) {
    node->call = (void (*)(int))0x4141414141414141;
}

static void drop(struct node *node) {
    scribble(node);
    free(node);
}

static void use_after_free(void) {
    for (int i = 0; i < 500; i++) {
        struct node *node = make(i);
        if (i == 250)
            kept = node;
        drop(node);
    }
    kept->call(kept->value);
}

static void fill(char *to, int last) {
    for (int i = 0; i <= last; i++)
        to[i] = (char)(i + 1);
}

static void heap(void) {
    for (int i = 0; i < 60; i++)
        buffers[i] = malloc(24);
    for (int i = 0; i < 60; i++)
        fill(buffers[i], i == 42 ? 27 : 23);
    for (int i = 0; i < 60; i++)
        free(buffers[i]);
}

static void copy(char *to, const char *from) {
    while ((*to = *from)) {
        to++;
        from++;
    }
}

static int name(int number) {
    char text[16];
    copy(text, number == 7 ? "a name of more than sixteen bytes" : "short");
    return text[0];
}

static void stack(void) {
    int sum = 0;
    for (int i = 0; i < 10; i++)
        sum += name(i);
    printf("%d\n", sum);
}

static void *add(void *argument) {
    for (int i = 0; i < 3000; i++)
        counter++;
    return argument;
}

static void race(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, add, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    counter = counter > 0 ? counter : 0;
    abort();
}

static void *one(void *argument) {
    pthread_mutex_lock(&first);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&second);
    return argument;
}

static void *two(void *argument) {
    pthread_mutex_lock(&second);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&first);
    return argument;
}

static void deadlock(void) {
    pthread_t threads[2];
    pthread_barrier_init(&both, NULL, 2);
    alarm(1);
    pthread_create(&threads[0], NULL, one, NULL);
    pthread_create(&threads[1], NULL, two, NULL);
    pthread_join(threads[0], NULL);
}

int main(int argc, char **argv) {
    const char *bug = argc > 1 ? argv[1] : "";
    if (strcmp(bug, "freed") == 0)
        use_after_free();
    if (strcmp(bug, "heap") == 0)
        heap();
    if (strcmp(bug, "stack") == 0)
        stack();
    if (strcmp(bug, "race") == 0)
        race();
    if (strcmp(bug, "deadlock") == 0)
        deadlock();
    return 0;
}
