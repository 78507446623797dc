/* A library whose file is overwritten in place, so that it keeps its name and its inode: between
   two loads, and while it is loaded. Arguments: the library, and another one of the same size. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char bytes[1 << 20];

static int load_and_call(const char *path, int times)
{
    void *library = dlopen(path, RTLD_NOW);
    int (*count)(int) = (int (*)(int))dlsym(library, "count");
    int sum = 0;
    while (times--)
        sum += count(times);
    dlclose(library);
    return sum;
}

static void overwrite(const char *path, const char *from)
{
    struct stat before;
    stat(path, &before);
    int in = open(from, O_RDONLY), out = open(path, O_WRONLY | O_TRUNC);
    ssize_t size = read(in, bytes, sizeof bytes);
    if (write(out, bytes, size) != size)
        perror(path);
    /* As `cp -p` does. */
    struct timespec times[] = {before.st_atim, before.st_mtim};
    futimens(out, times);
    close(in);
    close(out);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    int before = load_and_call(argv[1], 5);
    overwrite(argv[1], argv[2]);
    int after = load_and_call(argv[1], 5);
    /* JNE becomes JE in the file, and so in the memory that it is mapped to. */
    void *library = dlopen(argv[1], RTLD_NOW);
    int (*count)(int) = (int (*)(int))dlsym(library, "count");
    const unsigned char *code = (const unsigned char *)(void *)count;
    int file = open(argv[1], O_RDWR);
    ssize_t size = pread(file, bytes, sizeof bytes, 0);
    for (ssize_t at = 0; at + 64 < size; at++)
        if (memcmp(bytes + at, code, 64) == 0)
            for (int i = 0; i < 64; i++)
                if (code[i] == 0x75) {
                    if (pwrite(file, "\x74", 1, at + i) != 1)
                        perror(argv[1]);
                    at = size;
                    break;
                }
    int changed = 0;
    for (int i = 5; i--;)
        changed += count(i);
    printf("before %d, after %d, changed %d\n", before, after, changed);
    return 0;
}
