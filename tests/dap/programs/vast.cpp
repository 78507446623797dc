// Much of all that an IDE shows: a million elements, a hundred thousand frames, 64 threads, and a line
// that is executed a million times.
#include <atomic>
#include <thread>
#include <unistd.h>
#include <vector>

static volatile long sum;
static std::atomic<int> waiting;

static long deep(int depth, const std::vector<int> &numbers) {
    if (depth == 0)
        return numbers[999999]; // deepest
    return deep(depth - 1, numbers) + 1;
}

static void wait() {
    waiting++;
    pause();
}

int main() {
    std::vector<int> numbers(1000000);
    for (int i = 0; i < 1000000; i++)
        sum += numbers[i] = i; // counted
    std::vector<std::thread> threads;
    for (int i = 0; i < 63; i++)
        threads.emplace_back(wait);
    while (waiting < 63)
        usleep(1000);
    sum += deep(99999, numbers);
    _exit(sum == 0);
}
