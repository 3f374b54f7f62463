/* Makes fsync and fdatasync take longer, as a busy or remote disk does. Preloaded into a server by slow_disk.py.
 *
 * SLOW_FSYNC names a file. While it is there, with two numbers in it, each call first waits for a time between so many
 * and so many milliseconds. What was written before is in the system's hands by then: a killed process leaves it behind.
 * Whoever reads the pipe of that name with .began gets a byte for each wait.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void tell(const char *path) {
    char name[4096];
    if (snprintf(name, sizeof name, "%s.began", path) >= (int)sizeof name) return;
    int pipe = open(name, O_WRONLY | O_NONBLOCK);
    if (pipe < 0) return;
    if (write(pipe, "x", 1) < 0) { /* nobody reads */ }
    close(pipe);
}

static void wait_a_while(void) {
    const char *path = getenv("SLOW_FSYNC");
    FILE *file = path ? fopen(path, "r") : NULL;
    long low = 0, high = 0;
    if (!file) return;
    int read = fscanf(file, "%ld %ld", &low, &high);
    fclose(file);
    if (read != 2 || high < low) return;
    tell(path);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long ms = low + (now.tv_nsec / 1000) % (high - low + 1);
    struct timespec pause = {ms / 1000, (ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_a_while();
    return real(fd);
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_a_while();
    return real(fd);
}
