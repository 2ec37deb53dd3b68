/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "control.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "facts.h"
#include "world.h"

static struct {
    char path[4096];
    int fd;
    pid_t owner; /* locks belong to the open file, which a forked child would share */
    dev_t filesystem;
    ino_t inode;
    off_t seen_size, applied;
    unsigned line;
} control = {.fd = -1};

static void close_file(void)
{
    if (control.fd >= 0)
        close(control.fd);
    control.fd = -1;
    control.seen_size = control.applied = 0;
    control.line = 0;
}

void control_forget(void)
{
    close_file();
    control.path[0] = '\0';
    world_clear();
}

static bool open_file(const struct stat *status)
{
    close_file();
    world_clear();
    control.fd = open(control.path, O_RDONLY | O_CLOEXEC);
    control.owner = getpid();
    control.filesystem = status->st_dev;
    control.inode = status->st_ino;
    return control.fd >= 0;
}

static void apply_lines(char *text)
{
    for (char *end; (end = strchr(text, '\n')); text = end + 1) {
        *end = '\0';
        control.line++;
        char shown[120];
        snprintf(shown, sizeof shown, "%s", text);
        if (!fact_apply(text))
            fprintf(stderr, "fake nvml: %s:%u: unknown or malformed fact: %s\n", control.path,
                    control.line, shown);
    }
}

/* Apply the whole lines between what was applied and size; a torn last line waits. */
static void read_until(off_t size)
{
    size_t length = (size_t)(size - control.applied);
    char *text = malloc(length + 1);
    ssize_t got = text ? pread(control.fd, text, length, control.applied) : -1;
    if (got > 0) {
        text[got] = '\0';
        char *last = memrchr(text, '\n', (size_t)got);
        if (last) {
            last[1] = '\0';
            control.applied += last + 1 - text;
            apply_lines(text);
        }
    }
    free(text);
}

static bool find_path(void)
{
    const char *path = getenv("FAIRWATT_FAKE_NVML");
    if (!control.path[0] && path)
        snprintf(control.path, sizeof control.path, "%s", path);
    return control.path[0] != '\0';
}

static bool is_current(const struct stat *status)
{
    return control.fd >= 0 && control.owner == getpid() && control.inode == status->st_ino
        && control.filesystem == status->st_dev && status->st_size >= control.applied;
}

static bool follow(void)
{
    struct stat status;
    if (fstat(control.fd, &status) != 0)
        return false;
    if (status.st_size != control.seen_size) {
        control.seen_size = status.st_size;
        read_until(status.st_size);
    }
    return true;
}

bool control_hold(bool exclusive)
{
    struct stat status;
    if (!find_path() || stat(control.path, &status) != 0)
        return false;
    if (!is_current(&status) && !open_file(&status))
        return false;
    return flock(control.fd, exclusive ? LOCK_EX : LOCK_SH) == 0 && follow();
}

/* In one write, so that a killed process leaves all of the facts or none. */
bool control_append(const char *lines)
{
    char text[2048];
    bool torn = control.applied != control.seen_size; /* its writer was killed: end that line */
    int length = snprintf(text, sizeof text, "%s%s", torn ? "\n" : "", lines);
    int fd = open(control.path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || length >= (int)sizeof text) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool done = write(fd, text, (size_t)length) == length;
    close(fd);
    return done && follow();
}

void control_release(void)
{
    if (control.fd >= 0)
        flock(control.fd, LOCK_UN);
}
