/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the API: preloaded into sbatch, it writes the text of $WIRE to the one field of the
 * job that holds the placeholder. sbatch puts the prefix of its release before each GRES; slurmrestd
 * or a library passes on what its user wrote. The job is found by looking, not by the layout of the
 * structure, which differs between releases.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define PLACEHOLDER "wire____"
#define FIELDS 200

static int peek(uintptr_t at, void *into, size_t size)
{
    struct iovec local = {into, size}, remote = {(void *)at, size};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static int rewrite(uintptr_t *job, const char *text)
{
    int found = 0;
    for (int i = 0; i < FIELDS; i++) {
        uintptr_t field;
        char head[4];
        if (!peek((uintptr_t)(job + i), &field, sizeof(field)))
            break;
        if (!peek(field, head, sizeof(head)) || memcmp(head, "gres", sizeof(head)))
            continue;
        char *value = (char *)field;
        if (strstr(value, PLACEHOLDER) && strlen(value) >= strlen(text)) {
            strcpy(value, text);
            found++;
        }
    }
    return found;
}

int slurm_submit_batch_job(void *job, void **answer)
{
    int (*submit)(void *, void **) = dlsym(RTLD_NEXT, "slurm_submit_batch_job");
    const char *text = getenv("WIRE");
    if (text == NULL || rewrite(job, text) != 1) {
        fprintf(stderr, "wire: the field was not found\n");
        _exit(3);
    }
    return submit(job, answer);
}
