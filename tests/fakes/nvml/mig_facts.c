/* SPDX-License-Identifier: Apache-2.0 */
#include "mig_facts.h"

#include <stdio.h>
#include <string.h>

#include "placement.h"
#include "words.h"

bool fact_mig(char **f)
{
    struct device *gpu = find_gpu(f[0]);
    return gpu && count_of(f[1], &gpu->mig_current) && count_of(f[2], &gpu->mig_pending);
}

static bool read_starts(char *text, struct profile *profile)
{
    char *rest;
    for (char *part = strtok_r(text, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
        unsigned *start = &profile->starts[profile->start_count];
        if (profile->start_count++ == MAX_STARTS || !count_of(part, start) || *start >= MAX_STARTS)
            return false;
    }
    return profile->start_count > 0;
}

/* profile GPU NAME ID KIND SIZE SLICES MEMORY_MIB SMS COPY_ENGINES DECODERS STARTS */
bool fact_profile(char **f)
{
    struct device *gpu = find_gpu(f[0]);
    struct profile made = {.media = strstr(f[1], "+me") != NULL};
    bool valid = gpu && gpu->profile_count < MAX_PROFILES && !profile_named(gpu, f[1])
        && (size_t)snprintf(made.name, sizeof made.name, "%s", f[1]) < sizeof made.name
        && count_of(f[2], &made.id) && count_of(f[3], &made.kind) && count_of(f[4], &made.size)
        && count_of(f[5], &made.slices) && number(f[6], &made.memory_mib)
        && count_of(f[7], &made.multiprocessors) && count_of(f[8], &made.copy_engines)
        && count_of(f[9], &made.decoders) && read_starts(f[10], &made) && made.size
        && made.size <= MAX_STARTS && made.slices;
    if (valid)
        gpu->profiles[gpu->profile_count++] = made;
    return valid;
}

static unsigned free_mig_index(const struct device *board)
{
    unsigned index = 0;
    while (world_instance(board, index))
        index++;
    return index;
}

/* The place that its id stands for if that is free, else the first one that is. */
static void find_place(struct gpu_instance *instance, const struct profile *profile)
{
    unsigned start;
    if (profile && (placement_of_id(instance->board, profile, instance->id, &start)
                    || placement_first(instance->board, profile, &start))) {
        instance->profile = profile;
        instance->start = start;
    }
}

/* The profile's own part of a name such as 1c.3g.20gb. */
static const char *without_compute_part(const char *name)
{
    return name[0] && !strncmp(name + 1, "c.", 2) ? name + 3 : name;
}

static struct gpu_instance *imply_gpu_instance(struct device *board, unsigned gi, const char *name)
{
    struct gpu_instance *instance = world_gpu_instance(board, gi);
    if (!instance && (instance = world_add_gpu_instance(board, gi))) {
        instance->implied = true;
        find_place(instance, profile_named(board, without_compute_part(name)));
    }
    return instance;
}

static struct device *add_instance(struct device *board, const struct device *slice)
{
    struct device *place = slice->index < MAX_MIG && !world_instance(board, slice->index)
                               && !world_find(slice->uuid) ? world_add_device() : NULL;
    if (place) {
        *place = *slice;
        board->instances_made++;
    }
    return place;
}

/* instance UUID GPU GI CI INDEX|- SLICES MEMORY_MIB SMS COPY_ENGINES DECODERS PROFILE */
bool fact_instance(char **f)
{
    struct device *board = find_gpu(f[1]);
    if (!board)
        return false;
    struct device slice = {.present = true, .board = board, .index = free_mig_index(board)};
    bool valid = word(f[0], slice.uuid) && count_of(f[2], &slice.gi) && count_of(f[3], &slice.ci)
        && (!strcmp(f[4], "-") || count_of(f[4], &slice.index)) && count_of(f[5], &slice.slices)
        && number(f[6], &slice.memory_mib) && count_of(f[7], &slice.multiprocessors)
        && count_of(f[8], &slice.copy_engines) && count_of(f[9], &slice.decoders)
        && (size_t)snprintf(slice.name, NAME_SIZE, "%.64s MIG %s", board->name, f[10]) < NAME_SIZE;
    struct device *made = valid ? add_instance(board, &slice) : NULL;
    if (made)
        made->gpu_instance = imply_gpu_instance(board, slice.gi, f[10]);
    return made != NULL;
}

static struct device *find_instance(const char *uuid)
{
    struct device *device = world_find(uuid);
    return device && device->board ? device : NULL;
}

/* remove-compute-instance UUID: its GPU instance stays. */
bool fact_remove_compute_instance(char **f)
{
    struct device *device = find_instance(f[0]);
    if (device)
        device->present = false;
    return device != NULL;
}

/* remove-instance UUID: a GPU instance that came with it goes with it. */
bool fact_remove_instance(char **f)
{
    struct device *device = find_instance(f[0]);
    if (!device)
        return false;
    device->present = false;
    struct gpu_instance *instance = device->gpu_instance;
    if (instance && instance->implied && world_compute_count(instance) == 0)
        instance->present = false;
    return true;
}

/* gpu-instance GPU GI START PROFILE */
bool fact_gpu_instance(char **f)
{
    struct device *board = find_gpu(f[0]);
    const struct profile *profile = board ? profile_named(board, f[3]) : NULL;
    unsigned id, start;
    if (!profile || !count_of(f[1], &id) || !count_of(f[2], &start)
        || !placement_is_free(board, profile, start))
        return false;
    struct gpu_instance *made = world_add_gpu_instance(board, id);
    if (made) {
        made->profile = profile;
        made->start = start;
    }
    return made != NULL;
}

/* remove-gpu-instance GPU GI: only without compute instances. */
bool fact_remove_gpu_instance(char **f)
{
    struct device *board = find_gpu(f[0]);
    unsigned id;
    struct gpu_instance *instance = board && count_of(f[1], &id) ? world_gpu_instance(board, id)
                                                                : NULL;
    if (!instance || world_compute_count(instance))
        return false;
    instance->present = false;
    return true;
}

static void name_slice(struct device *slice, const struct profile *profile)
{
    char part[16] = "";
    if (slice->slices != profile->slices)
        snprintf(part, sizeof part, "%uc.", slice->slices);
    snprintf(slice->name, NAME_SIZE, "%.48s MIG %s%s", slice->board->name, part, profile->name);
}

/* compute-instance UUID GPU GI CI FIRST_SLICE SLICES */
bool fact_compute_instance(char **f)
{
    struct device *board = find_gpu(f[1]);
    unsigned id;
    struct gpu_instance *owner = board && count_of(f[2], &id) ? world_gpu_instance(board, id) : NULL;
    if (!owner || !owner->profile)
        return false;
    const struct profile *profile = owner->profile;
    struct device slice = {.present = true, .board = board, .gpu_instance = owner, .gi = id,
                           .index = free_mig_index(board), .memory_mib = profile->memory_mib,
                           .copy_engines = profile->copy_engines, .decoders = profile->decoders};
    if (!word(f[0], slice.uuid) || !count_of(f[3], &slice.ci) || !count_of(f[4], &slice.first_slice)
        || !count_of(f[5], &slice.slices) || world_compute_instance(owner, slice.ci)
        || slice.first_slice + slice.slices > profile->slices)
        return false;
    slice.multiprocessors = profile->multiprocessors * slice.slices / profile->slices;
    name_slice(&slice, profile);
    return add_instance(board, &slice) != NULL;
}

/* clear-instances GPU: as after a reboot. */
bool fact_clear_instances(char **f)
{
    struct device *board = find_gpu(f[0]);
    for (size_t i = 0; board && i < world.device_count; i++)
        if (world.devices[i].board == board)
            world.devices[i].present = false;
    for (size_t i = 0; board && i < world.gpu_instance_count; i++)
        if (world.gpu_instances[i].board == board)
            world.gpu_instances[i].present = false;
    return board != NULL;
}
