// Functions for a debugger to call: that read, print, allocate, count, crash.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <errno.h>
#include <unistd.h>
struct account { int id; char owner[16]; struct account *next; };
int calls;
int total(struct account *a) { int n = 0; calls++; for (; a; a = a->next) n += a->id; return n; }
double half(double x) { return x / 2; }
void dump(struct account *a) { for (; a; a = a->next) printf("account %d of %s\n", a->id, a->owner); fflush(stdout); }
void boom(int *p) { *p = 1; }
char *twice(const char *s) { char *r = malloc(2 * strlen(s) + 1); strcpy(r, s); strcat(r, s); return r; }
int fill(void) { int n = 0; for (int i = 0; i < 9; i++) { char *p = malloc(60000); memset(p, i, 60000); n += p[59999]; } return n; }
// Returns the number of written bytes, or the error.
static long result(long written) { return written < 0 ? errno : written; }
long unreadable(void) { return result(write(1, (char *)8, 4)); }
long parts(char *first) { struct iovec all[] = {{first, 4}, {(char *)8, 4}, {"never", 5}}; return result(writev(1, all, 3)); }
// Ends at a link of the list that leads nowhere.
int main(void) {
    struct account *list = 0;
    for (int i = 1; i <= 5; i++) {
        struct account *a = malloc(sizeof *a);
        a->id = i; snprintf(a->owner, 16, "user%d", i); a->next = list; list = a;
        total(list);
    }
    if (half(3) == 1.5) list->next->next = (void *)0x10;
    return total(list);
}
