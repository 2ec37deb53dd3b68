/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit-client FILE FIRST STEP COUNT: submits COUNT batch jobs one after the other from one
 * process: the lines FIRST, FIRST+STEP, ... of FILE, from its start again at its end. A line is
 * `UID TRES PARTITION MINUTES CPUS`, PARTITION "-" for none. Prints the first start and the last
 * end on the monotonic clock in ns, how many jobs were refused, then each submission's time in
 * ns, one a line. Run by root, for jobs of any user. The jobs begin at a midnight in a year, so
 * that nothing is scheduled and equal jobs are equal all day.
 */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct row {
    unsigned uid, minutes, cpus;
    char gres[64], partition[32];
};

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static struct row *read_rows(const char *path, int *count)
{
    struct row *rows = NULL, row;
    FILE *file = fopen(path, "r");
    *count = 0;
    while (file && fscanf(file, "%u %63s %31s %u %u", &row.uid, row.gres, row.partition,
                          &row.minutes, &row.cpus) == 5) {
        rows = realloc(rows, (*count + 1) * sizeof(row));
        rows[(*count)++] = row;
    }
    if (file)
        fclose(file);
    return rows;
}

static int submit(const struct row *row)
{
    static char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    job_desc_msg_t job;
    submit_response_msg_t *answer = NULL;
    slurm_init_job_desc_msg(&job);
    job.name = "bench";
    job.script = "#!/bin/sh\ntrue\n";
    job.work_dir = "/tmp";
    job.std_in = job.std_out = job.std_err = "/dev/null";
    job.environment = environment;
    job.env_size = 1;
    job.user_id = job.group_id = row->uid;
    job.tres_per_node = (char *)row->gres;
    if (strcmp(row->partition, "-"))
        job.partition = (char *)row->partition;
    job.time_limit = row->minutes;
    job.cpus_per_task = row->cpus;
    job.begin_time = (time(NULL) / 86400 + 365) * 86400;
    int failed = slurm_submit_batch_job(&job, &answer);
    if (!failed)
        slurm_free_submit_response_response_msg(answer);
    return failed ? errno : 0;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: submit-client FILE FIRST STEP COUNT\n");
        return 2;
    }
    int rows_count, first = atoi(argv[2]), step = atoi(argv[3]), count = atoi(argv[4]);
    struct row *rows = read_rows(argv[1], &rows_count);
    if (!rows) {
        fprintf(stderr, "submit-client: no jobs in %s\n", argv[1]);
        return 2;
    }
    long long *took_ns = calloc(count, sizeof(*took_ns));
    int refused = 0, last_error = 0;
    slurm_init(NULL);
    long long first_ns = now_ns();
    for (int i = 0; i < count; i++) {
        long long start_ns = now_ns();
        int error = submit(&rows[(first + (long)i * step) % rows_count]);
        took_ns[i] = now_ns() - start_ns;
        if (error) {
            refused++;
            last_error = error;
        }
    }
    printf("%lld\n%lld\n%d\n", first_ns, now_ns(), refused);
    for (int i = 0; i < count; i++)
        printf("%lld\n", took_ns[i]);
    if (refused)
        fprintf(stderr, "%d refused, the last: %s\n", refused, slurm_strerror(last_error));
    return 0;
}
