/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes use a device, how much of it, and the driver's own accounting. */
#define _GNU_SOURCE
#include "call.h"

#include <unistd.h>

static const unsigned long long MIB = 1ull << 20;

static nvmlProcessInfo_t describe(const struct device *device, const struct process *process)
{
    return (nvmlProcessInfo_t){
        .pid = process->pid,
        .used_memory = process->memory_mib < 0 ? NVML_VALUE_NOT_AVAILABLE
                                               : (unsigned long long)process->memory_mib * MIB,
        .gpu_instance = device->board ? device->gi : NVML_NO_INSTANCE,
        .compute_instance = device->board ? device->ci : NVML_NO_INSTANCE,
    };
}

/* Fill as many as fit; return how many there are. A MIG board shows those of its instances. */
static unsigned list_processes(const struct device *asked, nvmlProcessInfo_t *infos, unsigned room)
{
    unsigned count = 0;
    for (size_t i = 0; i < world.device_count; i++) {
        const struct device *device = &world.devices[i];
        if (!device->present || (device != asked && device->board != asked))
            continue;
        for (size_t k = 0; k < device->process_count; k++, count++)
            if (infos && count < room)
                infos[count] = describe(device, &device->processes[k]);
    }
    return count;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned *count,
                                                            nvmlProcessInfo_t *infos)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, ANY_DEVICE, count);
    if (ret == NVML_SUCCESS) {
        unsigned room = infos ? *count : 0;
        *count = list_processes(call.device, infos, room);
        ret = *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    }
    return call_end(&call, ret);
}

static nvmlReturn_t give_none(const char *function, nvmlDevice_t handle, unsigned *count)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, function, handle, ANY_DEVICE, count);
    return give_number(&call, ret, count, 0);
}

/* No process of the fake draws pictures. */
EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned *count,
                                                             nvmlProcessInfo_t *infos)
{
    (void)infos;
    return give_none(__func__, handle, count);
}

/* No process of the fake ever goes through the MPS server. */
EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned *count,
                                                               nvmlProcessInfo_t *infos)
{
    (void)infos;
    return give_none(__func__, handle, count);
}

static nvmlReturn_t give_samples(const struct call *call, nvmlProcessUtilizationSample_t *samples,
                                 unsigned *count, unsigned long long last_seen_us)
{
    const struct device *gpu = call->device;
    unsigned long long now_us = (unsigned long long)call->step_ms * 1000;
    unsigned room = samples ? *count : 0;
    *count = (unsigned)gpu->process_count;
    if (*count == 0)
        return NVML_SUCCESS; /* the binding takes this for an error and raises NVMLError(0) */
    if (last_seen_us >= now_us)
        return NVML_ERROR_NOT_FOUND;
    if (*count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++)
        samples[i] = (nvmlProcessUtilizationSample_t){
            .pid = gpu->processes[i].pid,
            .timestamp_us = now_us,
            .sm = gpu->processes[i].sm_util,
        };
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t handle,
                                                    nvmlProcessUtilizationSample_t *samples,
                                                    unsigned *count,
                                                    unsigned long long last_seen_us)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, count);
    if (ret == NVML_SUCCESS && call.device->mig_current)
        ret = NVML_ERROR_NOT_SUPPORTED;
    if (ret == NVML_SUCCESS)
        ret = give_samples(&call, samples, count, last_seen_us);
    return call_end(&call, ret);
}

/* The fake's driver keeps no accounts: the mode is off, and MIG forbids to change it. */
EXPORT nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t handle, unsigned *mode)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, mode);
    if (ret == NVML_SUCCESS)
        *mode = 0;
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t handle, unsigned mode)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, handle);
    if (ret == NVML_SUCCESS && mode != 0)
        ret = geteuid() != 0 ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_NOT_SUPPORTED;
    return call_end(&call, ret);
}
