/* SPDX-License-Identifier: Apache-2.0 */
/* The library and the driver: opening, closing, the list of GPUs. */
#include "call.h"

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    struct call call;
    (void)flags;
    return call_end(&call, call_init(&call, __func__));
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    struct call call;
    return call_end(&call, call_init(&call, __func__));
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    struct call call;
    return call_end(&call, call_shutdown(&call, __func__));
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    struct call call;
    nvmlReturn_t ret = call_begin(&call, __func__);
    if (ret == NVML_SUCCESS && !count)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS)
        *count = world_gpu_count(); /* a lost GPU is still counted */
    return call_end(&call, ret);
}

static nvmlReturn_t give_handle(struct call *call, const char *function, struct device *found,
                                nvmlReturn_t missing, nvmlDevice_t *handle)
{
    if (!handle)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!found)
        return missing;
    nvmlReturn_t ret = call_check_device(call, function, found);
    if (ret == NVML_SUCCESS)
        *handle = found;
    return ret;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle)
{
    struct call call;
    nvmlReturn_t ret = call_begin(&call, __func__);
    if (ret == NVML_SUCCESS)
        ret = give_handle(&call, __func__, world_gpu(index), NVML_ERROR_INVALID_ARGUMENT, handle);
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle)
{
    struct call call;
    nvmlReturn_t ret = call_begin(&call, __func__);
    if (ret == NVML_SUCCESS && !uuid)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS)
        ret = give_handle(&call, __func__, world_find(uuid), NVML_ERROR_NOT_FOUND, handle);
    return call_end(&call, ret);
}
