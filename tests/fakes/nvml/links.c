/* SPDX-License-Identifier: Apache-2.0 */
/* The board's PCIe link and its NVLinks. */
#include "call.h"

EXPORT nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t handle, unsigned *generation)
{
    return give_condition(__func__, handle, PCIE_GENERATION, generation);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t handle, unsigned *width)
{
    return give_condition(__func__, handle, PCIE_WIDTH, width);
}

/* The most that board and slot can do together. */
EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t handle, unsigned *generation)
{
    return give_condition(__func__, handle, PCIE_MAX_GENERATION, generation);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t handle,
                                                          unsigned *generation)
{
    return give_condition(__func__, handle, PCIE_MAX_GENERATION, generation);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t handle, unsigned *width)
{
    return give_condition(__func__, handle, PCIE_MAX_WIDTH, width);
}

EXPORT nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t handle, unsigned *replays)
{
    return give_condition(__func__, handle, PCIE_REPLAYS, replays);
}

/* A board without NVLink supports none of this; a link that it does not have is invalid. */
static nvmlReturn_t on_link(struct call *call, const char *function, nvmlDevice_t handle,
                            unsigned index, const void *result)
{
    nvmlReturn_t ret = call_device(call, function, handle, GPUS, result);
    if (ret != NVML_SUCCESS)
        return ret;
    unsigned count = (unsigned)condition(call->device, NVLINK_COUNT, call->step_ms);
    if (index >= NVML_NVLINK_MAX_LINKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (count == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    return index < count ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t handle, unsigned index, unsigned *active)
{
    struct call call;
    nvmlReturn_t ret = on_link(&call, __func__, handle, index, active);
    return give_number(&call, ret, active, ret ? 0 : !call.device->conditions.links[index].down);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t handle, unsigned index,
                                               unsigned *version)
{
    struct call call;
    nvmlReturn_t ret = on_link(&call, __func__, handle, index, version);
    return give_number(&call, ret, version, ret ? 0 : nvlink_version(call.device));
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t handle, unsigned index,
                                                    unsigned kind, unsigned long long *count)
{
    struct call call;
    nvmlReturn_t ret = on_link(&call, __func__, handle, index, count);
    if (ret == NVML_SUCCESS && kind >= LINK_ERRORS)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS)
        *count = (unsigned long long)call.device->conditions.links[index].errors[kind];
    return call_end(&call, ret);
}
