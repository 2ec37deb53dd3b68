/* SPDX-License-Identifier: Apache-2.0 */
/* Temperatures and the limits that the board itself keeps. */
#include "call.h"

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, unsigned sensor,
                                             unsigned *temperature_c)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, temperature_c);
    if (ret == NVML_SUCCESS && sensor != 0)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    return give_number(&call, ret, temperature_c, ret ? 0 : call.device->temperature_c);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t handle, nvmlTemperature_v1_t *reading)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, reading);
    if (ret == NVML_SUCCESS && reading->version != NVML_TEMPERATURE_V1)
        ret = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (ret == NVML_SUCCESS)
        reading->temperature = (int)call.device->temperature_c;
    return call_end(&call, ret);
}

/* By NVML's number of the threshold; the others are for boards with fans. */
EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t handle, unsigned threshold,
                                                      unsigned *limit_c)
{
    static const enum condition LIMITS[] = {
        TEMPERATURE_SHUTDOWN, TEMPERATURE_SLOWDOWN, TEMPERATURE_MEMORY_MAX, TEMPERATURE_GPU_MAX,
    };
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, limit_c);
    if (ret == NVML_SUCCESS && threshold >= NVML_TEMPERATURE_THRESHOLD_COUNT)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS && threshold >= sizeof LIMITS / sizeof *LIMITS)
        ret = NVML_ERROR_NOT_SUPPORTED;
    return give_number(&call, ret, limit_c,
                       ret ? 0 : (unsigned)condition(call.device, LIMITS[threshold], call.step_ms));
}
