/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks in MHz, why they are not higher, and the states that bear on them. */
#include "call.h"

/* By NVML's number of the clock; graphics and SM clock are one. */
static const enum condition NOW[NVML_CLOCK_COUNT] = {CLOCK_SM, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO};
static const enum condition MOST[NVML_CLOCK_COUNT] = {CLOCK_MAX_SM, CLOCK_MAX_SM, CLOCK_MAX_MEMORY,
                                                      CLOCK_MAX_VIDEO};

static nvmlReturn_t give_clock(const char *function, nvmlDevice_t handle, unsigned type,
                               const enum condition *which, unsigned *mhz)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, function, handle, GPUS, mhz);
    if (ret == NVML_SUCCESS && (type >= NVML_CLOCK_COUNT || !which))
        ret = NVML_ERROR_INVALID_ARGUMENT;
    return give_number(&call, ret, mhz,
                       ret ? 0 : (unsigned)condition(call.device, which[type], call.step_ms));
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, unsigned type, unsigned *mhz)
{
    return give_clock(__func__, handle, type, NOW, mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, unsigned type, unsigned *mhz)
{
    return give_clock(__func__, handle, type, MOST, mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t handle, unsigned type,
                                                   unsigned *mhz)
{
    return give_clock(__func__, handle, type, MOST, mhz);
}

/* id 0: current; the others are targets and the most that may be set. */
EXPORT nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t handle, unsigned type, unsigned id,
                                       unsigned *mhz)
{
    const enum condition *which = id == 0 ? NOW : id < NVML_CLOCK_ID_COUNT ? MOST : 0;
    return give_clock(__func__, handle, type, which, mhz);
}

static nvmlReturn_t give_reasons(const char *function, nvmlDevice_t handle,
                                 unsigned long long *reasons)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, function, handle, GPUS, reasons);
    if (ret == NVML_SUCCESS)
        *reasons = (unsigned long long)condition(call.device, REASONS, call.step_ms);
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t handle,
                                                           unsigned long long *reasons)
{
    return give_reasons(__func__, handle, reasons);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t handle,
                                                              unsigned long long *reasons)
{
    return give_reasons(__func__, handle, reasons);
}

static nvmlReturn_t give_all_reasons(const char *function, nvmlDevice_t handle,
                                     unsigned long long *reasons)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, function, handle, GPUS, reasons);
    if (ret == NVML_SUCCESS)
        *reasons = 0x1FF;
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t handle,
                                                             unsigned long long *reasons)
{
    return give_all_reasons(__func__, handle, reasons);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t handle,
                                                                unsigned long long *reasons)
{
    return give_all_reasons(__func__, handle, reasons);
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t handle, unsigned *state)
{
    return give_condition(__func__, handle, PERFORMANCE_STATE, state);
}

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t handle, unsigned *mode)
{
    return give_condition(__func__, handle, PERSISTENCE, mode);
}
