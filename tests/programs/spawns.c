/* Threads that fork, vfork and spawn at once: the SIGCHLD of one child interrupts whichever thread
   the kernel picks, and another one may take it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *worker(void *unused)
{
    (void)unused;
    for (int i = 0; i < 2; i++) {
        int status, good = 0;
        pid_t pid = vfork();
        if (pid == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        good += waitpid(pid, &status, 0) == pid && status == 0;
        pid = fork();
        if (pid == 0)
            _exit(3);
        good += waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3;
        char *arguments[] = { "true", NULL };
        if (posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ) == 0)
            good += waitpid(pid, &status, 0) == pid && status == 0;
        pthread_mutex_lock(&lock);
        done += good;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, worker, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("done %d\n", done);
    return 0;
}
