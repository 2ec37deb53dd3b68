/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit-client COUNT GRES: submits COUNT batch jobs one after the other from one process. Prints
 * the first start and the last end on the monotonic clock, then each submission's time, all in ns,
 * one a line. The jobs begin in a year, so that nothing is scheduled. Exit status 1 when one is
 * refused.
 */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
    static char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    if (argc != 3) {
        fprintf(stderr, "usage: submit-client COUNT GRES\n");
        return 2;
    }
    int count = atoi(argv[1]);
    long long *took_ns = calloc(count, sizeof(*took_ns));
    slurm_init(NULL);
    long long first_ns = now_ns();

    for (int i = 0; i < count; i++) {
        job_desc_msg_t job;
        submit_response_msg_t *answer = NULL;
        slurm_init_job_desc_msg(&job);
        job.name = "bench";
        job.script = "#!/bin/sh\ntrue\n";
        job.work_dir = "/tmp";
        job.std_in = job.std_out = job.std_err = "/dev/null";
        job.environment = environment;
        job.env_size = 1;
        job.user_id = getuid();
        job.group_id = getgid();
        job.tres_per_node = argv[2];
        job.begin_time = time(NULL) + 365 * 86400;

        long long start_ns = now_ns();
        int failed = slurm_submit_batch_job(&job, &answer);
        took_ns[i] = now_ns() - start_ns;
        if (failed) {
            fprintf(stderr, "submit-client: %s\n", slurm_strerror(errno));
            return 1;
        }
        slurm_free_submit_response_response_msg(answer);
    }
    printf("%lld\n%lld\n", first_ns, now_ns());
    for (int i = 0; i < count; i++)
        printf("%lld\n", took_ns[i]);
    return 0;
}
