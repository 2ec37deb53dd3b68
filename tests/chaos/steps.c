/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts what a process does to files, call by call, and at a given step kills it with SIGKILL or
 * tells it that the disk is full. Preloaded; nothing happens before `chaos_arm`.
 *
 * A step is a write, a sync, a new length, a new name, a removal or a new file, of a regular file.
 * A process dies before its step, after it, or, of a write, in the middle.
 *
 * With a diary it also notes what each write destroys, and each sync: from that a power cut can be
 * played afterwards, which takes back what no sync has put on disk (`power.py`). A line of the
 * diary is a header and the bytes that were there before.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))real(#name))

struct entry {
    uint64_t file;   /* inode */
    int64_t offset;  /* of the bytes that follow; -1: the file was synced */
    int64_t length;  /* of the file before */
    int64_t count;   /* of the bytes that follow */
};

static int diary = -1;
static long steps, kill_at, full_from, full_until;
static uint64_t state = 1;
static int armed, half_written;

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static uint64_t chance(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* From the step `kill_step` on: 0 is never. While full_step <= step < full_step + full_steps no
 * byte finds room. */
void chaos_arm(long kill_step, long full_step, long full_steps, unsigned long seed)
{
    steps = 0;
    kill_at = kill_step;
    full_from = full_step;
    full_until = full_step + full_steps;
    state = seed * 2654435761u + 88172645463325252u;
    half_written = 0;
    armed = 1;
}

void chaos_disarm(void) { armed = 0; }

long chaos_steps(void) { return steps; }

static int is_file(int fd)
{
    struct stat about;
    int kept = errno;
    int yes = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    errno = kept;
    return yes;
}

static void note(struct entry entry, const void *bytes)
{
    struct iovec parts[] = {{&entry, sizeof entry}, {(void *)bytes, (size_t)entry.count}};
    int kept = errno;
    if (writev(diary, parts, 2) < 0)
        abort();
    errno = kept;
}

/* Note what stands from `at` on in up to `count` bytes, before it is written over or cut off. */
static void note_before(int fd, int64_t at, size_t count)
{
    struct stat about;
    if (!armed || diary < 0 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        return;
    int64_t there = about.st_size - at;
    size_t old = there < 0 ? 0 : (size_t)there < count ? (size_t)there : count;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    void *bytes = malloc(old + 1);
    int copy = old ? REAL(open)(path, O_RDONLY | O_CLOEXEC) : -1;
    if (!bytes || (old && (copy < 0 || pread(copy, bytes, old, at) != (ssize_t)old)))
        abort();
    if (copy >= 0)
        close(copy);
    note((struct entry){about.st_ino, at, about.st_size, (int64_t)old}, bytes);
    free(bytes);
}

static void note_synced(int fd)
{
    struct stat about;
    if (armed && diary >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode))
        note((struct entry){about.st_ino, -1, about.st_size, 0}, "");
}

/* Where a write without an offset goes. */
static int64_t place_of(int fd)
{
    struct stat about;
    if (fcntl(fd, F_GETFL) & O_APPEND)
        return fstat(fd, &about) == 0 ? about.st_size : 0;
    return lseek(fd, 0, SEEK_CUR);
}

void chaos_diary(const char *path)
{
    diary = REAL(open)(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int is_full(void) { return full_from && steps >= full_from && steps < full_until; }

/* Begin a step that is done or not, nothing between; says whether to die behind it. */
static int begin(void)
{
    if (!armed)
        return 0;
    steps++;
    if (steps != kill_at)
        return 0;
    if (chance() & 1)
        die();
    return 1;
}

static int end(int dies, int result)
{
    if (dies)
        die();
    return result;
}

/* How much of a write is done; -1: none, the disk is full. A full disk first takes a part. */
static ssize_t begin_write(int fd, size_t count, int *dies)
{
    *dies = 0;
    if (!armed || !is_file(fd))
        return (ssize_t)count;
    steps++;
    if (steps == kill_at) {
        *dies = 1;
        switch (chance() % 3) {
        case 0: die(); break;
        case 1: return count ? (ssize_t)(chance() % count) : 0;
        }
        return (ssize_t)count;
    }
    if (is_full()) {
        if (!half_written && count > 1) {
            half_written = 1;
            return (ssize_t)(count / 2);
        }
        errno = ENOSPC;
        return -1;
    }
    half_written = 0;
    return (ssize_t)count;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    int dies;
    ssize_t part = begin_write(fd, count, &dies);
    if (part < 0)
        return -1;
    note_before(fd, place_of(fd), (size_t)part);
    ssize_t done = REAL(write)(fd, bytes, (size_t)part);
    if (dies)
        die();
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    int dies;
    ssize_t part = begin_write(fd, count, &dies);
    if (part < 0)
        return -1;
    note_before(fd, at, (size_t)part);
    ssize_t done = REAL(pwrite)(fd, bytes, (size_t)part, at);
    if (dies)
        die();
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at)
{
    int dies;
    ssize_t part = begin_write(fd, count, &dies);
    if (part < 0)
        return -1;
    note_before(fd, at, (size_t)part);
    ssize_t done = REAL(pwrite64)(fd, bytes, (size_t)part, at);
    if (dies)
        die();
    return done;
}

int fsync(int fd)
{
    int dies = begin();
    int result = REAL(fsync)(fd);
    note_synced(fd);
    return end(dies, result);
}

int fdatasync(int fd)
{
    int dies = begin();
    int result = REAL(fdatasync)(fd);
    note_synced(fd);
    return end(dies, result);
}

int ftruncate(int fd, off_t length)
{
    int dies = begin();
    note_before(fd, length, SIZE_MAX);
    return end(dies, REAL(ftruncate)(fd, length));
}

int ftruncate64(int fd, off64_t length)
{
    int dies = begin();
    note_before(fd, length, SIZE_MAX);
    return end(dies, REAL(ftruncate64)(fd, length));
}

int rename(const char *from, const char *to)
{
    int dies = begin();
    return end(dies, REAL(rename)(from, to));
}

int unlink(const char *path)
{
    int dies = begin();
    return end(dies, REAL(unlink)(path));
}

static int opened(const char *name, const char *path, int flags, mode_t mode)
{
    int (*function)(const char *, int, ...) = (int (*)(const char *, int, ...))real(name);
    int makes = armed && (flags & O_CREAT) && access(path, F_OK) != 0;
    if (!makes)
        return function(path, flags, mode);
    int dies = begin();
    if (is_full()) {
        errno = ENOSPC;
        return -1;
    }
    return end(dies, function(path, flags, mode));
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return opened("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return opened("open64", path, flags, mode);
}
