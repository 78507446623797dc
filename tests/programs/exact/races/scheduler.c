// A scheduler of coroutines on threads, which steal them from each other.
#include "order.h"
#include <sched.h>
#include <stdatomic.h>
#include <ucontext.h>
enum { TASKS = 12, WORKERS = 3, STACK = 16384 };
struct task {
    ucontext_t context, *home;
    long left, id;
};
static struct task tasks[TASKS];
static char stacks[TASKS][STACK];
static struct task *queues[WORKERS][64];
static int heads[WORKERS], tails[WORKERS];
static pthread_mutex_t locks[WORKERS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                         PTHREAD_MUTEX_INITIALIZER};
static _Atomic long alive = TASKS, stolen;

static void put(int queue, struct task *task)
{
    pthread_mutex_lock(&locks[queue]);
    queues[queue][tails[queue]++ % 64] = task;
    pthread_mutex_unlock(&locks[queue]);
}

static struct task *take(int queue)
{
    struct task *task = 0;
    pthread_mutex_lock(&locks[queue]);
    if (heads[queue] < tails[queue])
        task = queues[queue][heads[queue]++ % 64];
    pthread_mutex_unlock(&locks[queue]);
    return task;
}

static void execute(int number)
{
    struct task *task = &tasks[number];
    while (task->left-- > 0) {
        note((unsigned long)task->id);
        work(50 + (int)task->id * 10);
        swapcontext(&task->context, task->home);
    }
    alive--;
    setcontext(task->home);
}

static void *run(void *number)
{
    int me = (int)(long)number;
    ucontext_t home;
    while (alive > 0) {
        struct task *task = take(me);
        for (int i = 1; !task && i < WORKERS; i++)
            if ((task = take((me + i) % WORKERS)))
                stolen++, note(77);
        if (!task) {
            sched_yield();
            continue;
        }
        task->home = &home;
        long before = task->left;
        swapcontext(&home, &task->context);
        if (before > 0)
            put(me, task);
    }
    return 0;
}

int main(int count, char **args)
{
    for (int i = 0; i < TASKS; i++) {
        tasks[i].left = atol(args[1]) * 6;
        tasks[i].id = i;
        getcontext(&tasks[i].context);
        tasks[i].context.uc_stack.ss_sp = stacks[i];
        tasks[i].context.uc_stack.ss_size = STACK;
        makecontext(&tasks[i].context, (void (*)(void))execute, 1, i);
        put(i % 2, &tasks[i]);
    }
    in_threads(WORKERS, run);
    return outcome((unsigned long)stolen);
}
