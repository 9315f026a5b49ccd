/* Preloaded: while `waiting` is set, a system call of the thread that set it returns only once another Python
 * thread has run. Where the GIL is held during the call, none can, and the call is noted in `held`. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

volatile int ran = 0;
char seen[4096] = "";
char held[4096] = "";
static __thread int waiting = 0;

void wait_for_others(int on) { waiting = on; }

static void before(const char *name) {
    if (!waiting) return;
    waiting = 0;
    strncat(seen, name, sizeof seen - strlen(seen) - 2);
    strcat(seen, " ");
    int now = ran, milliseconds = 0;
    while (ran == now && milliseconds++ < 3000) usleep(1000);
    if (ran == now) {
        strncat(held, name, sizeof held - strlen(held) - 2);
        strcat(held, " ");
    }
    waiting = 1;
}

#define CALL(type, name, parameters, arguments) \
    type name parameters { \
        static type(*real) parameters; \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        before(#name); \
        return real arguments; \
    }
#define OPEN(name) \
    int name(const char *p, int f, ...) { \
        static int (*real)(const char *, int, ...); \
        va_list a; \
        va_start(a, f); \
        mode_t m = va_arg(a, mode_t); \
        va_end(a); \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        before(#name); \
        return real(p, f, m); \
    }

OPEN(open)
OPEN(open64)
CALL(int, access, (const char *p, int m), (p, m))
CALL(int, lstat, (const char *p, struct stat *s), (p, s))
CALL(int, lstat64, (const char *p, struct stat64 *s), (p, s))
CALL(int, fstat, (int f, struct stat *s), (f, s))
CALL(int, fstat64, (int f, struct stat64 *s), (f, s))
CALL(int, fstatat, (int d, const char *p, struct stat *s, int f), (d, p, s, f))
CALL(int, fstatat64, (int d, const char *p, struct stat64 *s, int f), (d, p, s, f))
CALL(DIR *, fdopendir, (int d), (d))
CALL(struct dirent *, readdir, (DIR * d), (d))
CALL(struct dirent64 *, readdir64, (DIR * d), (d))
CALL(int, closedir, (DIR * d), (d))
CALL(int, mkdir, (const char *p, mode_t m), (p, m))
CALL(int, rmdir, (const char *p), (p))
CALL(int, rename, (const char *a, const char *b), (a, b))
CALL(int, unlink, (const char *p), (p))
CALL(int, close, (int f), (f))
CALL(ssize_t, preadv, (int f, const struct iovec *v, int n, off_t o), (f, v, n, o))
CALL(ssize_t, preadv64, (int f, const struct iovec *v, int n, off64_t o), (f, v, n, o))
CALL(ssize_t, preadv2, (int f, const struct iovec *v, int n, off_t o, int g), (f, v, n, o, g))
CALL(ssize_t, preadv64v2, (int f, const struct iovec *v, int n, off64_t o, int g), (f, v, n, o, g))
CALL(ssize_t, pwrite, (int f, const void *b, size_t n, off_t o), (f, b, n, o))
CALL(ssize_t, pwrite64, (int f, const void *b, size_t n, off64_t o), (f, b, n, o))
CALL(int, fallocate, (int f, int m, off_t o, off_t n), (f, m, o, n))
CALL(int, fdatasync, (int f), (f))
CALL(int, fsync, (int f), (f))
CALL(int, fchmod, (int f, mode_t m), (f, m))
CALL(int, chmod, (const char *p, mode_t m), (p, m))
CALL(int, futimens, (int f, const struct timespec *t), (f, t))
CALL(int, flock, (int f, int o), (f, o))
CALL(int, statvfs, (const char *p, struct statvfs *s), (p, s))
CALL(int, statvfs64, (const char *p, struct statvfs64 *s), (p, s))
CALL(int, posix_fadvise, (int f, off_t o, off_t n, int a), (f, o, n, a))
CALL(int, posix_fadvise64, (int f, off64_t o, off64_t n, int a), (f, o, n, a))
CALL(void *, mmap, (void *a, size_t n, int p, int g, int f, off_t o), (a, n, p, g, f, o))
CALL(int, munmap, (void *a, size_t n), (a, n))
CALL(int, madvise, (void *a, size_t n, int d), (a, n, d))
