/* Branches to addresses at which no code can be: where the program stands then, and its stack. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

static sigjmp_buf out;
static volatile unsigned long stack;

static void on_fault(int number, siginfo_t *info, void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    printf("signal %d, code %d, address %p: rip %llx, %ld bytes pushed, rax %llx, rcx %llx, rdx "
           "%llx, r11 %llx\n", number, info->si_code, info->si_addr, r[REG_RIP],
           (long)stack - (long)r[REG_RSP], r[REG_RAX], r[REG_RCX], r[REG_RDX], r[REG_R11]);
    siglongjmp(out, 1);
}

#define TRY(code)                                                                           \
    if (!sigsetjmp(out, 1)) {                                                               \
        __asm__ volatile("mov %%rsp, %0\n mov $1, %%ecx\n mov $2, %%edx\n mov $3, %%r11d\n" \
                         code                                                               \
                         : "=m"(stack) : : "rax", "rcx", "rdx", "r11", "memory");           \
    }

int main(void)
{
    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    TRY("mov $0x8000000000000000, %%rax\n jmp *%%rax");
    TRY("mov $0x8000000000000000, %%rax\n call *%%rax");
    TRY("mov $0x5a5a5a5a5a5a5a5a, %%rdx\n call *%%rdx");
    TRY("mov $0x5a5a5a5a5a5a5a5a, %%r11\n call *%%r11");
    TRY("mov $0x5a5a5a5a5a5a5a5a, %%rcx\n push %%rcx\n jmp *(%%rsp)");
    TRY("mov $0x8000000000000000, %%rax\n push %%rax\n ret");
    TRY("mov $0x8000000000000000, %%rax\n push %%rax\n ret $16");
    TRY("call 1f\n1: lea 2f(%%rip), %%rax\n xchg %%rax, (%%rsp)\n ret\n2: "
        "call 3f\n jmp 4f\n3: movabs $0x8000000000000000, %%rax\n mov %%rax, (%%rsp)\n ret\n4:");
    TRY("mov $0xffffffff81000000, %%rax\n jmp *%%rax");
    TRY("mov $0x00007fffffffffff, %%rax\n jmp *%%rax");
    TRY("mov $0x10, %%eax\n call *%%rax");
    TRY("jmp *0x10");
    TRY("mov $0x7ffffffff000, %%rax\n push %%rax\n ret");
    return 0;
}
