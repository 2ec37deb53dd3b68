/* SPDX-License-Identifier: Apache-2.0
 * Stands where slurm.conf names a hook: runs one of several variants, in turn by job id, and notes
 * how long it took. Variants are PROGRAM.d/0, 1, …; the one that is not there does nothing.
 *
 * A line of PROGRAM.times: job, variant, begin and end on the monotonic clock in ns, status.
 * As `task` or any other name without variants it only prints the monotonic clock.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { VARIANTS = 3 };

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int run(char *program)
{
    int status = 0;
    pid_t child = vfork();
    if (child == 0) {
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 126;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    static char self[4096], variant[4200], times[4200], line[200];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (argc > 1 || length < 0) {
        printf("%" PRId64 "\n", now_ns());
        return 0;
    }
    const char *id = getenv("SLURM_JOB_ID");
    long job = id ? atol(id) : 0, turn = job % VARIANTS;
    snprintf(variant, sizeof variant, "%s.d/%ld", self, turn);
    snprintf(times, sizeof times, "%s.times", self);
    int status = 0;
    int64_t begin = now_ns(), end = begin;
    if (access(variant, X_OK) == 0) {
        status = run(variant);
        end = now_ns();
    }
    int size = snprintf(line, sizeof line, "%ld %ld %" PRId64 " %" PRId64 " %d\n", job, turn,
                        begin, end, status);
    int file = open(times, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0 || write(file, line, size) != size)
        perror(times);
    return status;
}
