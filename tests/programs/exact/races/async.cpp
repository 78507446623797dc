// std::async, futures, call_once, exceptions that cross threads.
#include "order.h"
#include <atomic>
#include <future>
#include <mutex>
#include <stdexcept>
#include <vector>

static std::atomic<long> thrown{0}, running{0};
static std::once_flag once;
static std::mutex lock;
static std::vector<long> list;

static long compute(long number)
{
    long others = running++;
    std::call_once(once, [=] { note((unsigned long)number + 40); });
    work(200 + (int)(number % 5) * 200);
    note((unsigned long)(number * 16 + others));
    {
        std::lock_guard<std::mutex> guard(lock);
        list.push_back(number);
    }
    running--;
    if (number % 7 == 3)
        throw std::runtime_error("seven");
    return number * others;
}

int main(int, char **args)
{
    unsigned long sum = 0;
    for (int round = 0; round < atoi(args[1]) * 2; round++) {
        std::vector<std::future<long>> futures;
        for (long i = 0; i < 8; i++)
            futures.push_back(std::async(std::launch::async, compute, i));
        for (auto &future : futures) {
            try {
                sum += (unsigned long)future.get();
            } catch (const std::runtime_error &) {
                thrown++;
            }
        }
    }
    for (long number : list)
        note((unsigned long)number);
    return outcome(sum * 100 + (unsigned long)thrown.load());
}
