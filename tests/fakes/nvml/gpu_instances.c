/* SPDX-License-Identifier: Apache-2.0 */
/* GPU instances: what a board offers, and to make, list and destroy them. */
#include "instances.h"

#include <stdio.h>

#include "placement.h"

/* On a board that can do MIG, be the mode on or off. */
static nvmlReturn_t on_capable_board(struct call *call, const char *function, nvmlDevice_t handle,
                                     const void *result)
{
    nvmlReturn_t ret = call_device(call, function, handle, GPUS, result);
    return ret == NVML_SUCCESS && !call->device->arch->mig ? NVML_ERROR_NOT_SUPPORTED : ret;
}

typedef nvmlReturn_t finder(const struct call *, unsigned, const struct profile **);

static nvmlReturn_t find_kind(const struct call *call, unsigned kind, const struct profile **found)
{
    if (kind >= NVML_GPU_INSTANCE_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    *found = profile_of_kind(call->device, kind);
    return *found ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t find_id(const struct call *call, unsigned id, const struct profile **found)
{
    *found = profile_with_id(call->device, id);
    return *found ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static void describe(const struct device *board, const struct profile *profile,
                     nvmlGpuInstanceProfileInfo_v2_t *info)
{
    *info = (nvmlGpuInstanceProfileInfo_v2_t){
        .version = NVML_GPU_INSTANCE_PROFILE_V2,
        .id = profile->id,
        .slices = profile->slices,
        .instances = placement_most(board, profile),
        .multiprocessors = profile->multiprocessors,
        .copy_engines = profile->copy_engines,
        .decoders = profile->decoders,
        .jpegs = profile->media,
        .ofas = profile->media,
        .memory_mib = (unsigned long long)profile->memory_mib,
    };
    snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t handle, unsigned kind,
                                                        nvmlGpuInstanceProfileInfo_t *info)
{
    struct call call;
    const struct profile *profile;
    nvmlReturn_t ret = on_capable_board(&call, __func__, handle, info);
    if (ret == NVML_SUCCESS)
        ret = find_kind(&call, kind, &profile);
    if (ret == NVML_SUCCESS) {
        nvmlGpuInstanceProfileInfo_v2_t all;
        describe(call.device, profile, &all);
        *info = (nvmlGpuInstanceProfileInfo_t){
            .id = all.id, .slices = all.slices, .instances = all.instances,
            .multiprocessors = all.multiprocessors, .copy_engines = all.copy_engines,
            .decoders = all.decoders, .jpegs = all.jpegs, .ofas = all.ofas,
            .memory_mib = all.memory_mib,
        };
    }
    return call_end(&call, ret);
}

static nvmlReturn_t check_version(nvmlReturn_t ret, const nvmlGpuInstanceProfileInfo_v2_t *info)
{
    return ret == NVML_SUCCESS && info->version != NVML_GPU_INSTANCE_PROFILE_V2
               ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH : ret;
}

static nvmlReturn_t give_profile(const char *function, nvmlDevice_t handle, finder *find,
                                 unsigned key, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    struct call call;
    const struct profile *profile;
    nvmlReturn_t ret = check_version(on_capable_board(&call, function, handle, info), info);
    if (ret == NVML_SUCCESS)
        ret = find(&call, key, &profile);
    if (ret == NVML_SUCCESS)
        describe(call.device, profile, info);
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t handle, unsigned kind,
                                                         nvmlGpuInstanceProfileInfo_v2_t *info)
{
    return give_profile(__func__, handle, find_kind, kind, info);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t handle, unsigned id,
                                                             nvmlGpuInstanceProfileInfo_v2_t *info)
{
    return give_profile(__func__, handle, find_id, id, info);
}

/* All legal places, taken or not, be the mode on or off; without a buffer only their count. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t handle, unsigned id,
                                                                  nvmlPlacement_t *places,
                                                                  unsigned *count)
{
    struct call call;
    const struct profile *profile;
    nvmlReturn_t ret = on_capable_board(&call, __func__, handle, count);
    if (ret == NVML_SUCCESS)
        ret = find_id(&call, id, &profile);
    if (ret == NVML_SUCCESS) {
        *count = profile->start_count;
        for (unsigned i = 0; places && i < *count; i++)
            places[i] = (nvmlPlacement_t){profile->starts[i], profile->size};
    }
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t handle, unsigned id,
                                                              unsigned *count)
{
    struct call call;
    const struct profile *profile;
    nvmlReturn_t ret = admit_mig_board(&call, call_begin(&call, __func__), handle, count);
    if (ret == NVML_SUCCESS)
        ret = find_id(&call, id, &profile);
    if (ret == NVML_SUCCESS)
        *count = placement_room(call.device, profile);
    return call_end(&call, ret);
}

static nvmlReturn_t create(const struct call *call, const struct profile *profile, unsigned start,
                           nvmlGpuInstance_t *made)
{
    unsigned id = placement_id(call->device, profile, start);
    nvmlReturn_t ret = tell("gpu-instance %s %u %u %s\n", call->device->uuid, id, start,
                            profile->name);
    if (ret == NVML_SUCCESS && !(*made = world_gpu_instance(call->device, id)))
        ret = NVML_ERROR_MEMORY; /* more than a process can follow */
    return ret;
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t handle, unsigned id,
                                                nvmlGpuInstance_t *made)
{
    struct call call;
    const struct profile *profile;
    unsigned start;
    nvmlReturn_t ret = admit_mig_board(&call, call_begin_change(&call, __func__), handle, made);
    if (ret == NVML_SUCCESS)
        ret = find_id(&call, id, &profile);
    if (ret == NVML_SUCCESS && !placement_first(call.device, profile, &start))
        ret = NVML_ERROR_INSUFFICIENT_RESOURCES;
    return call_end(&call, ret ? ret : create(&call, profile, start, made));
}

static nvmlReturn_t check_place(const struct call *call, const struct profile *profile,
                                const nvmlPlacement_t *place)
{
    if (!place || place->size != profile->size || !placement_is_legal(profile, place->start))
        return NVML_ERROR_INVALID_ARGUMENT;
    return placement_is_free(call->device, profile, place->start)
               ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t handle, unsigned id,
                                                             const nvmlPlacement_t *place,
                                                             nvmlGpuInstance_t *made)
{
    struct call call;
    const struct profile *profile;
    nvmlReturn_t ret = admit_mig_board(&call, call_begin_change(&call, __func__), handle, made);
    if (ret == NVML_SUCCESS)
        ret = find_id(&call, id, &profile);
    if (ret == NVML_SUCCESS)
        ret = check_place(&call, profile, place);
    return call_end(&call, ret ? ret : create(&call, profile, place->start, made));
}

/* Compute instances hold it, and a process that runs on the board without one. */
EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle)
{
    struct call call;
    nvmlReturn_t ret = call_begin_change(&call, __func__);
    ret = admit_gpu_instance(&call, ret, handle, handle);
    if (ret == NVML_SUCCESS && world_compute_count(handle))
        ret = NVML_ERROR_IN_USE;
    return call_end(&call, ret ? ret : tell("remove-gpu-instance %s %u\n", call.device->uuid,
                                            handle->id));
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t handle, unsigned id,
                                              nvmlGpuInstance_t *instances, unsigned *count)
{
    struct call call;
    const struct profile *profile;
    nvmlReturn_t ret = admit_mig_board(&call, call_begin(&call, __func__), handle, count);
    if (ret == NVML_SUCCESS)
        ret = instances ? find_id(&call, id, &profile) : NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS) {
        *count = 0;
        for (size_t i = 0; i < world.gpu_instance_count; i++) {
            struct gpu_instance *instance = &world.gpu_instances[i];
            if (instance->present && instance->board == call.device && instance->profile == profile)
                instances[(*count)++] = instance;
        }
    }
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t handle, unsigned id,
                                                 nvmlGpuInstance_t *instance)
{
    struct call call;
    nvmlReturn_t ret = admit_mig_board(&call, call_begin(&call, __func__), handle, instance);
    if (ret == NVML_SUCCESS && !(*instance = world_gpu_instance(call.device, id)))
        ret = NVML_ERROR_NOT_FOUND;
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info)
{
    struct call call;
    nvmlReturn_t ret = admit_gpu_instance(&call, call_begin(&call, __func__), handle, info);
    if (ret == NVML_SUCCESS) {
        const struct profile *profile = handle->profile;
        *info = (nvmlGpuInstanceInfo_t){
            .device = handle->board,
            .id = handle->id,
            .profile_id = profile ? profile->id : NVML_NO_INSTANCE,
            .placement = {handle->start, profile ? profile->size : 0},
        };
    }
    return call_end(&call, ret);
}
