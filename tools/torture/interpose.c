/* Loaded into a process by LD_PRELOAD: counts the operations that change files below one folder, and does something bad at one of
 * them. The plan lies in a file that all processes of a trial map (TORTURE_PLAN), so that children count together with their
 * parent. `interpose.py` compiles this file and writes the plan. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { COUNT, KILL_BEFORE, KILL_TORN, FAIL_ONCE, FAIL_FROM, SHORT, DELAY };

struct plan {
    _Atomic long done;   /* operations so far */
    long at;             /* the operation, counted from 1, at which it happens */
    long what;           /* one of the enumeration */
    long number;         /* errno of a failure; milliseconds of a delay */
    char folder[4096];   /* where operations count; empty: nowhere */
};

static struct plan *plan;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TORTURE_PLAN");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *map = mmap(NULL, sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        plan = map == MAP_FAILED ? NULL : map;
        close(file);
    }
}

static int below(const char *path) {
    size_t size = plan ? strlen(plan->folder) : 0;
    return size && path && !strncmp(path, plan->folder, size);
}

static int counts(int file) {
    char link[64], path[PATH_MAX];
    if (!plan || !plan->folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return below(path);
}

/* Returns an errno to fail with, 0 to go on, or -1 for a short write; may end the process. */
static int happens(int torn) {
    long now = atomic_fetch_add(&plan->done, 1) + 1;
    if (plan->what == FAIL_FROM && now >= plan->at) return (int)plan->number;
    if (now != plan->at) return 0;
    switch (plan->what) {
    case KILL_BEFORE: kill(getpid(), SIGKILL); return 0;
    case KILL_TORN: if (torn) return -1; kill(getpid(), SIGKILL); return 0;
    case FAIL_ONCE: return (int)plan->number;
    case SHORT: return -1;
    case DELAY: { struct timespec time = {plan->number / 1000, plan->number % 1000 * 1000000L}; nanosleep(&time, NULL); return 0; }
    default: return 0;
    }
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define FAIL(condition) do { if (condition) { int bad = happens(0); if (bad > 0) { errno = bad; return -1; } } } while (0)

ssize_t write(int file, const void *data, size_t size) {
    REAL(write);
    if (size && counts(file)) {
        int bad = happens(1);
        if (bad > 0) { errno = bad; return -1; }
        if (bad < 0) {
            ssize_t some = real(file, data, size > 1 ? size / 2 : 1);
            if (plan->what == KILL_TORN) kill(getpid(), SIGKILL);
            return some;
        }
    }
    return real(file, data, size);
}

int fsync(int file) { REAL(fsync); FAIL(counts(file)); return real(file); }
int rename(const char *from, const char *to) { REAL(rename); FAIL(below(to)); return real(from, to); }
int link(const char *from, const char *to) { REAL(link); FAIL(below(to)); return real(from, to); }
int unlink(const char *path) { REAL(unlink); FAIL(below(path)); return real(path); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); FAIL(below(path)); return real(path, mode); }
int ftruncate(int file, off_t size) { REAL(ftruncate); FAIL(counts(file)); return real(file, size); }
int ftruncate64(int file, off64_t size) { REAL(ftruncate64); FAIL(counts(file)); return real(file, size); }

static int opened(const char *path, int flags) {
    if ((flags & O_CREAT) && below(path)) {
        int bad = happens(0);
        if (bad > 0) { errno = bad; return -1; }
    }
    return 0;
}

int open(const char *path, int flags, ...) {
    REAL(open);
    mode_t mode = 0;
    if (flags & O_CREAT) { __builtin_va_list list; __builtin_va_start(list, flags); mode = __builtin_va_arg(list, int); __builtin_va_end(list); }
    if (opened(path, flags)) return -1;
    return real(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    REAL(open64);
    mode_t mode = 0;
    if (flags & O_CREAT) { __builtin_va_list list; __builtin_va_start(list, flags); mode = __builtin_va_arg(list, int); __builtin_va_end(list); }
    if (opened(path, flags)) return -1;
    return real(path, flags, mode);
}
