/* Values of many types at one line, and calls with results of many kinds. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum color { RED, GREEN = 5, BLUE };
struct point { int x; short y; unsigned b : 3; signed c : 5; };
union both { int i; float f; };
struct pair { double a; long b; };
struct large { long words[4]; };
struct node {
    int id;
    const char *name;
    struct node *next;
    struct point at;
    enum color color;
    double weight;
    char tag[8];
    union both u;
    bool on;
    struct { int in; long out; };
    int grid[2][3];
    void (*then)(int);
};

static long total = -7;
unsigned char byte = 200;
float ratio = 0.25f;
const char *title = "ti\"tle\n";
struct node *head;
int table[5] = {1, 2, 3, 4, 5};

__asm__(".text\n.globl seven\n.type seven, @function\nseven:\nnop\nnop\nnop\nnop\nnop\nnop\nret\n"
        ".size seven, . - seven\n");
void seven(void);

#define KEPT __attribute__((noinline, noclone))
KEPT static double mean(double sum, int count) { double r = sum / count; total += count; return r; }
KEPT static struct point point_of(int i) { struct point p = {i, -i, i & 7, -(i & 7)}; return p; }
KEPT static struct pair pair_of(long i) { struct pair p = {i + 0.5, -i}; return p; }
KEPT static struct large large_of(long i) { struct large l = {{i, i + 1, i + 2, i + 3}}; return l; }
KEPT static const char *name_of(int i) { return i & 1 ? "odd" : "even"; }
KEPT static void then(int x) { byte += x; }

KEPT int work(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        struct node *a = calloc(1, sizeof *a);
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        a->id = i;
        a->name = name_of(i);
        a->next = head;
        a->at = point_of(i);
        a->color = i % 3 == 0 ? RED : i % 3 == 1 ? GREEN : BLUE;
        a->weight = pair_of(i).a;
        sum += mean(i * 1.5, i + 1) > 100;
        strcpy(a->tag, "tag");
        a->u.f = i / 2.0f;
        a->on = i & 1;
        a->in = -i;
        a->out = 1L << i;
        a->grid[1][2] = large_of(i).words[2];
        a->then = then;
        head = a;
        sum += a->id + name[1] + head->grid[1][2]; /* the line */
        a->then(1);
        seven();
    }
    return sum;
}

int main(void) {
    printf("%d\n", work(12));
    return 0;
}
