/* The library for overwritten.c, in two versions whose code has other branches. */
#ifdef SECOND
#define EVEN(n) (n) + 100
#define ODD(n) (n)
#else
#define EVEN(n) (n)
#define ODD(n) (n) * 2 + 1
#endif

int count(int n)
{
    int sum = 0;
#ifdef SECOND
    for (int i = 0; i < 3; i++)
        sum += i;
#endif
    if (n % 2 == 0)
        return sum + EVEN(n);
    return sum + ODD(n);
}
