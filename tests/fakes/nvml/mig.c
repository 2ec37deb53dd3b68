/* SPDX-License-Identifier: Apache-2.0 */
/* MIG devices, which are compute instances: their handles, ids and shares. */
#include "call.h"

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned *count)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, count);
    if (ret == NVML_SUCCESS)
        *count = call.device->mig_current ? MAX_MIG : 0;
    return call_end(&call, ret);
}

/* Indices may have gaps: each free one is NOT_FOUND. */
EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned index,
                                                        nvmlDevice_t *instance)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, instance);
    if (ret == NVML_SUCCESS && !call.device->arch->mig)
        ret = NVML_ERROR_NOT_SUPPORTED;
    if (ret == NVML_SUCCESS && index >= MAX_MIG)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS) {
        struct device *found = call.device->mig_current ? world_instance(call.device, index) : NULL;
        ret = found ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
        if (found)
            *instance = found;
    }
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned *is_instance)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, ANY_DEVICE, is_instance);
    if (ret == NVML_SUCCESS)
        *is_instance = call.device->board != NULL;
    return call_end(&call, ret);
}

/* These ids exist for instances only: a GPU's handle is an invalid argument. */
static nvmlReturn_t on_instance(struct call *call, const char *function, nvmlDevice_t handle,
                                const void *result)
{
    nvmlReturn_t ret = call_device(call, function, handle, ANY_DEVICE, result);
    return ret == NVML_SUCCESS && !call->device->board ? NVML_ERROR_INVALID_ARGUMENT : ret;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, unsigned *id)
{
    struct call call;
    nvmlReturn_t ret = on_instance(&call, __func__, handle, id);
    if (ret == NVML_SUCCESS)
        *id = call.device->gi;
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t handle, unsigned *id)
{
    struct call call;
    nvmlReturn_t ret = on_instance(&call, __func__, handle, id);
    if (ret == NVML_SUCCESS)
        *id = call.device->ci;
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t handle,
                                                                 nvmlDevice_t *gpu)
{
    struct call call;
    nvmlReturn_t ret = on_instance(&call, __func__, handle, gpu);
    if (ret == NVML_SUCCESS)
        *gpu = call.device->board;
    return call_end(&call, ret);
}

static unsigned gpu_instance_slices(const struct device *device)
{
    const struct gpu_instance *instance = device->gpu_instance;
    return instance && instance->profile ? instance->profile->slices : device->slices;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, nvmlDeviceAttributes_t *shares)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, INSTANCES, shares);
    if (ret == NVML_SUCCESS)
        *shares = (nvmlDeviceAttributes_t){
            .multiprocessors = call.device->multiprocessors,
            .copy_engines = call.device->copy_engines,
            .decoders = call.device->decoders,
            .gpu_instance_slices = gpu_instance_slices(call.device),
            .compute_instance_slices = call.device->slices,
            .memory_mib = (unsigned long long)call.device->memory_mib,
        };
    return call_end(&call, ret);
}
