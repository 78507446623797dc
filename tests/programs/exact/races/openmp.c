// OpenMP: loops that are divided as they go, critical sections, tasks, a sum of floats in any order.
#include "order.h"

int main(int count, char **args)
{
    int rounds = atoi(args[1]);
    float sum = 0;
    for (int round = 0; round < rounds; round++) {
#pragma omp parallel for schedule(dynamic, 3) reduction(+ : sum) num_threads(4)
        for (int i = 0; i < 200; i++) {
            sum += 1.0f / (float)(i + 1 + work(40) % 2);
#pragma omp critical
            note((unsigned long)i);
        }
#pragma omp parallel num_threads(4)
#pragma omp single
        for (int i = 0; i < 20; i++) {
#pragma omp task
            note((unsigned long)i + work(100) % 5);
        }
    }
    return outcome((unsigned long)(sum * 1000));
}
