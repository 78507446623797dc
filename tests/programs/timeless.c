/* Forbids itself to read the time-stamp counter, and reads it. */
#include <signal.h>
#include <sys/prctl.h>
#include <linux/prctl.h>
#include <unistd.h>

static void on_fault(int sig)
{
    (void)sig;
    (void)!write(1, "refused\n", 8);
    _exit(7);
}

int main(void)
{
    signal(SIGSEGV, on_fault);
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    getppid();
    __asm__ volatile("rdtsc" : : : "eax", "edx");
    return 1;
}
