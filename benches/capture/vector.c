/* A loop over vectors: few branches. */
#include <stdio.h>

enum { COUNT = 4096 };

int main(void)
{
    static float a[COUNT], b[COUNT];
    for (int i = 0; i < COUNT; i++)
        a[i] = (float)i, b[i] = 0.5F;
    for (int round = 0; round < 1600000; round++)
        for (int i = 0; i < COUNT; i++)
            a[i] = a[i] * 0.999F + b[i];
    printf("%f\n", (double)a[COUNT / 2]);
    return 0;
}
