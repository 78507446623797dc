/* Calls what the vsyscall page is for. */
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

int main(void)
{
    time_t (*old_time)(time_t *) = (time_t (*)(time_t *))0xffffffffff600400;
    int (*old_gettimeofday)(struct timeval *, void *) =
        (int (*)(struct timeval *, void *))0xffffffffff600000;
    struct timeval now = { 0, 0 };
    time_t stored = 0;
    int result = old_gettimeofday(&now, NULL);
    time_t later = old_time(&stored);
    printf("%d %d %d\n", result, later - now.tv_sec < 100, later == stored && stored > 0);
    return 0;
}
