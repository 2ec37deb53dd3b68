/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "instances.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "control.h"

bool is_privileged(void) { return geteuid() == 0; }

nvmlReturn_t admit_mig_board(struct call *call, nvmlReturn_t begun, nvmlDevice_t handle,
                             const void *result)
{
    nvmlReturn_t ret = call_admit(call, begun, handle, GPUS, result);
    if (ret == NVML_SUCCESS && !(call->device->arch->mig && call->device->mig_current))
        ret = NVML_ERROR_NOT_SUPPORTED;
    if (ret == NVML_SUCCESS && !is_privileged())
        ret = NVML_ERROR_NO_PERMISSION;
    return ret;
}

nvmlReturn_t admit_gpu_instance(struct call *call, nvmlReturn_t begun, nvmlGpuInstance_t handle,
                                const void *result)
{
    if (begun != NVML_SUCCESS)
        return begun;
    if (!handle || !world_has_gpu_instance(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    return admit_mig_board(call, begun, handle->board, result);
}

nvmlReturn_t tell(const char *format, ...)
{
    char lines[1024];
    va_list words;
    va_start(words, format);
    int length = vsnprintf(lines, sizeof lines, format, words);
    va_end(words);
    bool told = length > 0 && length < (int)sizeof lines && control_append(lines);
    return told ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}
