/* SPDX-License-Identifier: Apache-2.0 */
/* The MIG mode: the one in force and the one that waits for a reset. */
#define _GNU_SOURCE
#include "call.h"

#include <stdio.h>
#include <unistd.h>

#include "control.h"

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned *current, unsigned *pending)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, current);
    if (ret == NVML_SUCCESS && !pending)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS && !call.device->arch->mig)
        ret = NVML_ERROR_NOT_SUPPORTED;
    if (ret == NVML_SUCCESS) {
        *current = call.device->mig_current;
        *pending = call.device->mig_pending;
    }
    return call_end(&call, ret);
}

static bool has_gpu_instances(const struct device *gpu)
{
    for (size_t i = 0; i < world.gpu_instance_count; i++)
        if (world.gpu_instances[i].present && world.gpu_instances[i].board == gpu)
            return true;
    return false;
}

/* Busy: a process holds the board, or instances would be lost. Else the reset succeeds; Hopper
 * and newer need none, so that their energy counter goes on. */
static nvmlReturn_t change_mode(const struct call *call, unsigned mode, nvmlReturn_t *activation)
{
    const struct device *gpu = call->device;
    bool busy = gpu->process_count > 0 || has_gpu_instances(gpu);
    bool resets = !gpu->arch->mig_without_reset && mode != gpu->mig_current;
    char lines[512];
    int used = snprintf(lines, sizeof lines, "mig %s %u %u\n", gpu->uuid,
                        busy ? gpu->mig_current : mode, mode);
    if (!busy && resets)
        snprintf(lines + used, sizeof lines - (size_t)used, "reset %s %lld\n", gpu->uuid,
                 (long long)call_next_step_ms(call));
    *activation = busy && mode != gpu->mig_current ? NVML_ERROR_IN_USE : NVML_SUCCESS;
    return control_append(lines) ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}

/* A mode that cannot be activated now is SUCCESS too: it is pending and `activation` tells why. */
EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t handle, unsigned mode,
                                         nvmlReturn_t *activation)
{
    struct call call;
    nvmlReturn_t ret = call_begin_change(&call, __func__);
    ret = call_admit(&call, ret, handle, GPUS, activation);
    if (ret == NVML_SUCCESS && mode > 1)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS && !call.device->arch->mig)
        ret = NVML_ERROR_NOT_SUPPORTED;
    if (ret == NVML_SUCCESS && geteuid() != 0)
        ret = NVML_ERROR_NO_PERMISSION;
    if (ret == NVML_SUCCESS)
        ret = change_mode(&call, mode, activation);
    return call_end(&call, ret);
}
