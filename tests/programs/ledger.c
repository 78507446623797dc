// Adds numbers, keeps them in a list, and writes to address 0 if it has an argument.

#include <stdio.h>
#include <stdlib.h>

struct node {
    int value;
    struct node *next;
};

struct point {
    int x, y;
    union {
        int number;
        float fraction;
    };
};

int total = 0;
static const char *names[] = {"one", "two", "three"};

static int add(int a, int b)
{
    int sum = a + b;
    total += sum; // total grows
    return sum;   // end of add
}

static struct node *push(struct node *list, int value)
{
    struct node *new = malloc(sizeof *new);
    new->value = value;
    new->next = list;
    return new; // end of push
}

static int depth(int n)
{
    if (n == 0)
        return 0; // deepest
    return 1 + depth(n - 1);
}

int main(int argc, char **argv)
{
    struct point p = {1, 2, {3}};
    struct node *list = NULL;
    int numbers[5] = {0};
    for (int i = 0; i < 5; i++) {
        numbers[i] = add(i, p.x);
        list = push(list, numbers[i]);
    }
    printf("%s %d\n", names[1], depth(300));
    int *nowhere = NULL;
    if (argc > 1)
        *nowhere = list->value; // crash
    return 0;
}
