/* SPDX-License-Identifier: Apache-2.0 */
/* Compute instances: parts of a GPU instance, each of them a MIG device. */
#include "instances.h"

#include <stdio.h>

/* The kinds by slices; a profile's id is its kind. */
static const unsigned SLICES_OF_KIND[] = {1, 2, 3, 4, 7, 8, 6};
enum { KINDS = sizeof SLICES_OF_KIND / sizeof *SLICES_OF_KIND };

static unsigned kind_of_slices(unsigned slices)
{
    unsigned kind = 0;
    while (kind < KINDS && SLICES_OF_KIND[kind] != slices)
        kind++;
    return kind;
}

/* Slices of a compute instance of this kind, 0 if the GPU instance offers none: 4g has no 3c. */
static unsigned offered_slices(const struct gpu_instance *owner, unsigned kind)
{
    unsigned slices = kind < KINDS ? SLICES_OF_KIND[kind] : 0;
    unsigned all = owner->profile ? owner->profile->slices : 0;
    return slices <= all && !(all == 4 && slices == 3) ? slices : 0;
}

static nvmlReturn_t find_slices(const struct gpu_instance *owner, unsigned kind, unsigned *slices)
{
    if (kind >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    *slices = offered_slices(owner, kind);
    return *slices ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static bool is_taken(const struct gpu_instance *owner, unsigned first, unsigned slices)
{
    for (size_t i = 0; i < world.device_count; i++) {
        const struct device *other = &world.devices[i];
        if (other->present && other->gpu_instance == owner && first < other->first_slice + other->slices
            && other->first_slice < first + slices)
            return true;
    }
    return false;
}

/* Compute instances begin at multiples of their slices. */
static bool first_free(const struct gpu_instance *owner, unsigned slices, unsigned *first)
{
    for (*first = 0; *first + slices <= owner->profile->slices; *first += slices)
        if (!is_taken(owner, *first, slices))
            return true;
    return false;
}

static unsigned room(const struct gpu_instance *owner, unsigned slices)
{
    unsigned count = 0;
    for (unsigned first = 0; first + slices <= owner->profile->slices; first += slices)
        count += !is_taken(owner, first, slices);
    return count;
}

static void describe(const struct gpu_instance *owner, unsigned kind, unsigned slices,
                     nvmlComputeInstanceProfileInfo_v2_t *info)
{
    const struct profile *profile = owner->profile;
    *info = (nvmlComputeInstanceProfileInfo_v2_t){
        .version = NVML_COMPUTE_INSTANCE_PROFILE_V2,
        .id = kind,
        .slices = slices,
        .instances = profile->slices / slices,
        .multiprocessors = profile->multiprocessors * slices / profile->slices,
        .copy_engines = profile->copy_engines,
        .decoders = profile->decoders,
        .jpegs = profile->media,
        .ofas = profile->media,
    };
    if (slices == profile->slices)
        snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
    else
        snprintf(info->name, sizeof info->name, "MIG %uc.%s", slices, profile->name);
}

static nvmlReturn_t find_profile(nvmlReturn_t ret, const struct gpu_instance *owner, unsigned kind,
                                 unsigned engines, nvmlComputeInstanceProfileInfo_v2_t *info)
{
    unsigned slices;
    if (ret == NVML_SUCCESS && engines != 0)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS)
        ret = find_slices(owner, kind, &slices);
    if (ret == NVML_SUCCESS)
        describe(owner, kind, slices, info);
    return ret;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t owner, unsigned kind, unsigned engines, nvmlComputeInstanceProfileInfo_t *info)
{
    struct call call;
    nvmlComputeInstanceProfileInfo_v2_t all;
    nvmlReturn_t ret = admit_gpu_instance(&call, call_begin(&call, __func__), owner, info);
    ret = find_profile(ret, owner, kind, engines, &all);
    if (ret == NVML_SUCCESS)
        *info = (nvmlComputeInstanceProfileInfo_t){
            .id = all.id, .slices = all.slices, .instances = all.instances,
            .multiprocessors = all.multiprocessors, .copy_engines = all.copy_engines,
            .decoders = all.decoders, .jpegs = all.jpegs, .ofas = all.ofas,
        };
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvmlGpuInstance_t owner, unsigned kind, unsigned engines,
    nvmlComputeInstanceProfileInfo_v2_t *info)
{
    struct call call;
    nvmlReturn_t ret = admit_gpu_instance(&call, call_begin(&call, __func__), owner, info);
    if (ret == NVML_SUCCESS && info->version != NVML_COMPUTE_INSTANCE_PROFILE_V2)
        ret = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return call_end(&call, find_profile(ret, owner, kind, engines, info));
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t owner,
                                                                       unsigned id, unsigned *count)
{
    struct call call;
    unsigned slices;
    nvmlReturn_t ret = admit_gpu_instance(&call, call_begin(&call, __func__), owner, count);
    if (ret == NVML_SUCCESS)
        ret = find_slices(owner, id, &slices);
    if (ret == NVML_SUCCESS)
        *count = room(owner, slices);
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    nvmlGpuInstance_t owner, unsigned id, nvmlPlacement_t *places, unsigned *count)
{
    struct call call;
    unsigned slices;
    nvmlReturn_t ret = admit_gpu_instance(&call, call_begin(&call, __func__), owner, count);
    if (ret == NVML_SUCCESS)
        ret = find_slices(owner, id, &slices);
    if (ret == NVML_SUCCESS) {
        *count = owner->profile->slices / slices;
        for (unsigned i = 0; places && i < *count; i++)
            places[i] = (nvmlPlacement_t){i * slices, slices};
    }
    return call_end(&call, ret);
}

static uint64_t hash(const char *text, uint64_t seed)
{
    for (; *text; text++)
        seed = (seed ^ (unsigned char)*text) * 0x100000001B3ull;
    return seed;
}

/* Depends on the board, the ids and how many instances the board has had: never the same again. */
static void make_uuid(const struct device *board, unsigned gi, unsigned ci, char *uuid)
{
    char name[NAME_SIZE + 64];
    snprintf(name, sizeof name, "%s/%u/%u/%u", board->uuid, gi, ci, board->instances_made);
    uint64_t high = hash(name, 0xCBF29CE484222325ull), low = hash(name, high ^ 0x9E3779B97F4A7C15ull);
    snprintf(uuid, NAME_SIZE, "MIG-%08x-%04x-5%03x-%04x-%012llx", (unsigned)(high >> 32),
             (unsigned)(high >> 16 & 0xFFFF), (unsigned)(high & 0xFFF),
             (unsigned)(low >> 48 & 0x3FFF) | 0x8000, (unsigned long long)(low & 0xFFFFFFFFFFFFull));
}

static nvmlReturn_t create(const struct call *call, const struct gpu_instance *owner,
                           unsigned first, unsigned slices, nvmlComputeInstance_t *made)
{
    char uuid[NAME_SIZE];
    unsigned ci = 0;
    while (world_compute_instance(owner, ci))
        ci++;
    make_uuid(call->device, owner->id, ci, uuid);
    nvmlReturn_t ret = tell("compute-instance %s %s %u %u %u %u\n", uuid, call->device->uuid,
                            owner->id, ci, first, slices);
    if (ret == NVML_SUCCESS && !(*made = world_compute_instance(owner, ci)))
        ret = NVML_ERROR_MEMORY; /* more than a process can follow */
    return ret;
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t owner, unsigned id,
                                                         nvmlComputeInstance_t *made)
{
    struct call call;
    unsigned slices, first;
    nvmlReturn_t ret = admit_gpu_instance(&call, call_begin_change(&call, __func__), owner, made);
    if (ret == NVML_SUCCESS)
        ret = find_slices(owner, id, &slices);
    if (ret == NVML_SUCCESS && !first_free(owner, slices, &first))
        ret = NVML_ERROR_INSUFFICIENT_RESOURCES;
    return call_end(&call, ret ? ret : create(&call, owner, first, slices, made));
}

static nvmlReturn_t check_place(const struct gpu_instance *owner, unsigned slices,
                                const nvmlPlacement_t *place)
{
    if (!place || place->size != slices || place->start % slices
        || place->start + slices > owner->profile->slices)
        return NVML_ERROR_INVALID_ARGUMENT;
    return is_taken(owner, place->start, slices) ? NVML_ERROR_INSUFFICIENT_RESOURCES : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    nvmlGpuInstance_t owner, unsigned id, const nvmlPlacement_t *place, nvmlComputeInstance_t *made)
{
    struct call call;
    unsigned slices;
    nvmlReturn_t ret = admit_gpu_instance(&call, call_begin_change(&call, __func__), owner, made);
    if (ret == NVML_SUCCESS)
        ret = find_slices(owner, id, &slices);
    if (ret == NVML_SUCCESS)
        ret = check_place(owner, slices, place);
    return call_end(&call, ret ? ret : create(&call, owner, place->start, slices, made));
}

static nvmlReturn_t admit_compute_instance(struct call *call, nvmlReturn_t begun,
                                           nvmlComputeInstance_t handle, const void *result)
{
    nvmlReturn_t ret = call_admit(call, begun, handle, ANY_DEVICE, result);
    if (ret == NVML_SUCCESS && !handle->gpu_instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    return ret == NVML_SUCCESS && !is_privileged() ? NVML_ERROR_NO_PERMISSION : ret;
}

/* What it drew stays in the board's past; its power ends with the step. */
EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle)
{
    struct call call;
    nvmlReturn_t ret = call_begin_change(&call, __func__);
    ret = admit_compute_instance(&call, ret, handle, handle);
    if (ret == NVML_SUCCESS && handle->process_count)
        ret = NVML_ERROR_IN_USE;
    if (ret == NVML_SUCCESS) {
        const char *uuid = handle->uuid;
        long long at_ms = call_next_step_ms(&call);
        ret = tell("power %s %lld 0\nutil %s %lld 0 0 0 0 0\nremove-compute-instance %s\n", uuid,
                   at_ms, uuid, at_ms, uuid);
    }
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t owner, unsigned id,
                                                       nvmlComputeInstance_t *instances,
                                                       unsigned *count)
{
    struct call call;
    unsigned slices;
    nvmlReturn_t ret = admit_gpu_instance(&call, call_begin(&call, __func__), owner, count);
    if (ret == NVML_SUCCESS)
        ret = instances ? find_slices(owner, id, &slices) : NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS) {
        *count = 0;
        for (size_t i = 0; i < world.device_count; i++) {
            struct device *made = &world.devices[i];
            if (made->present && made->gpu_instance == owner && made->slices == slices)
                instances[(*count)++] = made;
        }
    }
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t owner, unsigned id,
                                                          nvmlComputeInstance_t *instance)
{
    struct call call;
    nvmlReturn_t ret = admit_gpu_instance(&call, call_begin(&call, __func__), owner, instance);
    if (ret == NVML_SUCCESS && !(*instance = world_compute_instance(owner, id)))
        ret = NVML_ERROR_NOT_FOUND;
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle,
                                                  nvmlComputeInstanceInfo_t *info)
{
    struct call call;
    nvmlReturn_t ret = admit_compute_instance(&call, call_begin(&call, __func__), handle, info);
    if (ret == NVML_SUCCESS)
        *info = (nvmlComputeInstanceInfo_t){
            .device = handle->board,
            .gpu_instance = handle->gpu_instance,
            .id = handle->ci,
            .profile_id = kind_of_slices(handle->slices),
            .placement = {handle->first_slice, handle->slices},
        };
    return call_end(&call, ret);
}
