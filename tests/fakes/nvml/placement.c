/* SPDX-License-Identifier: Apache-2.0 */
#include "placement.h"

#include <string.h>

struct used { unsigned memory_mask, compute_slices, media; };

static unsigned mask_of(const struct profile *profile, unsigned start)
{
    return ((1u << profile->size) - 1) << start;
}

static struct used used_on(const struct device *board)
{
    struct used used = {0};
    for (size_t i = 0; i < world.gpu_instance_count; i++) {
        const struct gpu_instance *instance = &world.gpu_instances[i];
        if (!instance->present || instance->board != board || !instance->profile)
            continue;
        used.memory_mask |= mask_of(instance->profile, instance->start);
        used.compute_slices += instance->profile->slices;
        used.media += instance->profile->media;
    }
    return used;
}

static unsigned compute_slices(const struct device *board)
{
    unsigned most = 0;
    for (size_t i = 0; i < board->profile_count; i++)
        if (board->profiles[i].slices > most)
            most = board->profiles[i].slices;
    return most;
}

static unsigned memory_slices(const struct device *board)
{
    unsigned most = 0;
    for (size_t i = 0; i < board->profile_count; i++)
        if (board->profiles[i].size > most)
            most = board->profiles[i].size;
    return most;
}

static unsigned smaller(unsigned a, unsigned b) { return a < b ? a : b; }

static bool fits(const struct used *used, const struct profile *profile, unsigned start)
{
    return !(used->memory_mask & mask_of(profile, start));
}

/* How many starts are free at once; the legal starts of one profile never overlap. */
static unsigned room(const struct device *board, const struct profile *profile,
                     const struct used *used)
{
    unsigned starts = 0, left = compute_slices(board) - used->compute_slices;
    for (unsigned i = 0; i < profile->start_count; i++)
        starts += fits(used, profile, profile->starts[i]);
    starts = smaller(starts, left / profile->slices);
    return profile->media ? smaller(starts, used->media ? 0 : 1) : starts;
}

bool placement_is_legal(const struct profile *profile, unsigned start)
{
    for (unsigned i = 0; i < profile->start_count; i++)
        if (profile->starts[i] == start)
            return true;
    return false;
}

bool placement_is_free(const struct device *board, const struct profile *profile, unsigned start)
{
    struct used used = used_on(board);
    return placement_is_legal(profile, start) && fits(&used, profile, start)
        && room(board, profile, &used) > 0;
}

bool placement_first(const struct device *board, const struct profile *profile, unsigned *start)
{
    for (unsigned i = 0; i < profile->start_count; i++)
        if (placement_is_free(board, profile, profile->starts[i])) {
            *start = profile->starts[i];
            return true;
        }
    return false;
}

unsigned placement_room(const struct device *board, const struct profile *profile)
{
    struct used used = used_on(board);
    return room(board, profile, &used);
}

unsigned placement_most(const struct device *board, const struct profile *profile)
{
    struct used none = {0};
    return room(board, profile, &none);
}

/* The first id of the tree's row whose nodes have the profile's size. */
static unsigned row_start(const struct device *board, const struct profile *profile)
{
    return memory_slices(board) / profile->size - 1;
}

unsigned placement_id(const struct device *board, const struct profile *profile, unsigned start)
{
    unsigned id = row_start(board, profile) + start / profile->size;
    while (world_gpu_instance(board, id))
        id++; /* only where a fact has put an id of its own there */
    return id;
}

bool placement_of_id(const struct device *board, const struct profile *profile, unsigned id,
                     unsigned *start)
{
    unsigned first = row_start(board, profile);
    *start = (id - first) * profile->size;
    return id >= first && placement_is_free(board, profile, *start);
}

const struct profile *profile_named(const struct device *board, const char *name)
{
    for (size_t i = 0; i < board->profile_count; i++)
        if (!strcmp(board->profiles[i].name, name))
            return &board->profiles[i];
    return NULL;
}

const struct profile *profile_with_id(const struct device *board, unsigned id)
{
    for (size_t i = 0; i < board->profile_count; i++)
        if (board->profiles[i].id == id)
            return &board->profiles[i];
    return NULL;
}

const struct profile *profile_of_kind(const struct device *board, unsigned kind)
{
    for (size_t i = 0; i < board->profile_count; i++)
        if (board->profiles[i].kind == kind)
            return &board->profiles[i];
    return NULL;
}
