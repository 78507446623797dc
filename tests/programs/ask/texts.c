// Strings around the limit of what is shown, and flags of which some have two names.
#include <string.h>

enum flags { READ = 1, GET = 1, WRITE = 2, PUT = 2, RUN = 4 };

static enum flags two = READ | WRITE, three = GET | PUT | RUN;
static char exact[201], longer[202], full[200], wide[302];

int main(void) {
    memset(exact, 'x', 200);
    memset(longer, 'x', 201);
    memset(full, 'x', 200);
    wide[0] = 'a';
    for (int i = 0; i < 150; i++)
        memcpy(wide + 1 + 2 * i, "\u00e9", 2);
    char *p = exact, *q = longer, *w = wide;
    return *p + *q + *w + full[0] == two + three; // the line
}
