// Small, without system calls, and the same each time: for walks that are compared. It ends where
// it cannot go on.

static volatile int sum;
static int numbers[6] = {5, 3, 9, 1, 7, 2};

typedef int (*function)(int);

__attribute__((noinline)) static int fibonacci(int n) {
    if (n < 2)
        return n;
    return fibonacci(n - 1) + fibonacci(n - 2);
}

static int is_odd(int n);

__attribute__((noinline)) static int is_even(int n) {
    return n == 0 ? 1 : is_odd(n - 1);
}

__attribute__((noinline)) static int is_odd(int n) {
    return n == 0 ? 0 : is_even(n - 1);
}

static inline __attribute__((always_inline)) int square(int n) {
    sum++;
    return n * n;
}

__attribute__((noinline)) static int twice(int n) {
    return 2 * n;
}

__attribute__((noinline)) static int halved(int n) {
    int half = n / 2;
    sum += half;
    return half;
}

__attribute__((noinline)) static int squares(int n) {
    return square(n) + square(n + 1);
}

__attribute__((noinline)) static int last(int n) {
    sum -= n;
    return sum;
}

__attribute__((noinline)) static int passed_on(int n) {
    sum += n;
    return last(n);
}

__attribute__((noinline)) static int chosen(int n) {
    switch (n % 4) {
    case 0:
        return twice(n);
    case 1:
        sum++;
        break;
    case 2:
        return halved(n) + 1;
    default:
        sum--;
    }
    return sum;
}

__attribute__((noinline)) static void sort(void) {
    for (int i = 1; i < 6; i++) {
        int number = numbers[i], j = i;
        for (; j > 0 && numbers[j - 1] > number; j--)
            numbers[j] = numbers[j - 1];
        numbers[j] = number;
    }
}

__attribute__((noinline)) static int each(function of) {
    int all = 0;
    for (int i = 0; i < 6; i++)
        all += of(numbers[i]);
    return all;
}

/* What the dynamic linker leaves on the stack is not the same everywhere, and locals show it before they
   are set. */
__attribute__((noinline)) static void scrub(void) {
    __asm__ volatile("lea -512(%%rsp), %%rdi; mov $512, %%ecx; xor %%eax, %%eax; rep stosb" ::
                         : "rdi", "rcx", "rax", "memory", "cc");
}

__attribute__((noinline)) static int wander(void) {
    static const function functions[] = {twice, halved, squares, passed_on, chosen};
    sum = 0;
    sort();
    for (int i = 0; i < 5; i++)
        sum += each(functions[i]);
    sum += fibonacci(6);
    sum += is_even(9) + is_odd(8);
    for (int i = 0; i < 20; i++) sum += i;
    each(chosen); each(twice);
    __builtin_trap();
}

int main(void) {
    scrub();
    return wander();
}
