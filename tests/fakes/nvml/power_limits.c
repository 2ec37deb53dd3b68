/* SPDX-License-Identifier: Apache-2.0 */
/* How much power a board may draw, in mW. */
#include "call.h"

EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t handle, unsigned *limit_mw)
{
    return give_condition(__func__, handle, POWER_ENFORCED, limit_mw);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t handle, unsigned *limit_mw)
{
    return give_condition(__func__, handle, POWER_LIMIT, limit_mw);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t handle,
                                                             unsigned *limit_mw)
{
    return give_condition(__func__, handle, POWER_DEFAULT, limit_mw);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t handle,
                                                                 unsigned *min_mw,
                                                                 unsigned *max_mw)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, min_mw);
    if (ret == NVML_SUCCESS && !max_mw)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS) {
        *min_mw = (unsigned)condition(call.device, POWER_MIN, call.step_ms);
        *max_mw = (unsigned)condition(call.device, POWER_MAX, call.step_ms);
    }
    return call_end(&call, ret);
}
