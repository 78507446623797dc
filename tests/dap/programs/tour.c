// Adds numbers, keeps them in a list, calls itself, and starts a thread. With an argument it does not
// end well: `crash` writes to address 0, `spin` never ends. The programs of the other languages do the
// same, on lines with the same comments.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    int value;
    struct node *next;
};

struct point {
    int x, y;
};

int total = 0;
int answer = 0;
volatile long spins = 0;

int add(int a, int b) { // add
    int sum = a + b;  // begin of add
    total += sum;     // total grows
    return sum;       // end of add
}

struct node *push(struct node *list, int value) {
    struct node *made = malloc(sizeof *made);
    made->value = value;
    made->next = list;
    return made; // end of push
}

int depth(int n) {
    if (n == 0)
        return 0; // deepest
    return 1 + depth(n - 1);
}

void *work(void *unused) {
    answer = 42; // in the thread
    return unused;
}

int main(int argc, char **argv) {
    struct point p = {1, 2};
    struct node *list = NULL;
    int numbers[5] = {0};
    for (int i = 0; i < 5; i++) {
        int number = add(i, p.x); // calls add
        numbers[i] = number;      // after add
        list = push(list, number);
    }
    int deep = depth(60);
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    printf("numbers up to %d, depth %d\n", numbers[4], deep);
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "spin") == 0)
        for (;;)
            spins++; // spins
    volatile int *nowhere = NULL;
    if (argc > 1)
        *nowhere = list->value; // crash
    return 0; // the end
}
