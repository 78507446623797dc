// A thread with deadlines, which must be allowed on all CPUs.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

int main(void)
{
    cpu_set_t cpus;
    printf("%d\n", sched_getaffinity(0, sizeof cpus, &cpus) || CPU_COUNT(&cpus) < 1);
    struct attributes wanted = {sizeof wanted, 6, 0, 0, 0, 10000000, 30000000, 30000000}, is = {0};
    errno = 0;
    long result = syscall(SYS_sched_setattr, 0, &wanted, 0);
    printf("%ld %d\n", result, errno);
    result = syscall(SYS_sched_getattr, 0, &is, sizeof is, 0);
    printf("%ld %u %lu\n", result, is.policy, (unsigned long)is.runtime);
    wanted = (struct attributes){sizeof wanted, 0};
    result = syscall(SYS_sched_setattr, 0, &wanted, 0);
    printf("%ld %d\n", result, CPU_COUNT(&cpus) == sysconf(_SC_NPROCESSORS_ONLN));
    return 0;
}
