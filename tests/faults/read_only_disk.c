/* Makes a folder read-only under a process that has its files open for writing, as a system does with a disk that has
 * failed; `mount -o remount,ro` refuses that.
 *
 * READ_ONLY_FOLDER names the folder. While a file of that name with .readonly is there, whoever writes below the folder
 * gets EROFS.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_armed(void) {
    char name[4096];
    const char *folder = getenv("READ_ONLY_FOLDER");
    if (!folder || snprintf(name, sizeof name, "%s.readonly", folder) >= (int)sizeof name) return 0;
    int before = errno, armed = access(name, F_OK) == 0;
    errno = before;
    return armed;
}

static int is_below(const char *path) {
    char real[4096];
    const char *folder = getenv("READ_ONLY_FOLDER");
    size_t length = strlen(folder);
    int before = errno;
    if (!realpath(path, real)) { /* it is not there yet: its folder decides */
        char copy[4096];
        snprintf(copy, sizeof copy, "%s", path);
        char *slash = strrchr(copy, '/');
        if (slash) *slash = 0;
        if (!realpath(slash ? copy : ".", real)) real[0] = 0;
    }
    errno = before;
    return strncmp(real, folder, length) == 0 && (real[length] == '/' || real[length] == 0);
}

static int refuses(int fd) {
    char link[64], path[4096];
    if (!is_armed()) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (!is_below(path)) return 0;
    errno = EROFS;
    return 1;
}

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) { return refuses(fd) ? -1 : REAL(write)(fd, data, size); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return refuses(fd) ? -1 : REAL(pwrite)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return refuses(fd) ? -1 : REAL(pwrite64)(fd, data, size, at);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    return refuses(fd) ? -1 : REAL(pwritev)(fd, parts, count, at);
}
int ftruncate(int fd, off_t size) { return refuses(fd) ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { return refuses(fd) ? -1 : REAL(ftruncate64)(fd, size); }
int posix_fallocate(int fd, off_t at, off_t size) { return refuses(fd) ? EROFS : REAL(posix_fallocate)(fd, at, size); }
int posix_fallocate64(int fd, off64_t at, off64_t size) {
    return refuses(fd) ? EROFS : REAL(posix_fallocate64)(fd, at, size);
}

#define OPEN(name)                                                                          \
    int name(const char *path, int flags, ...) {                                            \
        va_list rest;                                                                       \
        va_start(rest, flags);                                                              \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;             \
        va_end(rest);                                                                       \
        int writes = (flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT;                    \
        if (writes && is_armed() && is_below(path)) {                                       \
            errno = EROFS;                                                                  \
            return -1;                                                                      \
        }                                                                                   \
        return REAL(name)(path, flags, mode);                                               \
    }

OPEN(open)
OPEN(open64)
