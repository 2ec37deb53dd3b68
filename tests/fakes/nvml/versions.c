/* SPDX-License-Identifier: Apache-2.0 */
#include "versions.h"

#include <string.h>

#include "call.h"

static const char *driver_version(void)
{
    return world.driver_version[0] ? world.driver_version : "580.95.05";
}

/* NVML's own major number and the driver's version. */
static const char *nvml_version(void)
{
    return world.nvml_version[0] ? world.nvml_version : "13.580.95.05";
}

bool versions_match(void)
{
    const char *dot = strchr(nvml_version(), '.');
    return dot && !strcmp(dot + 1, driver_version());
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    struct call call;
    nvmlReturn_t ret = call_begin(&call, __func__);
    return call_end(&call, ret != NVML_SUCCESS ? ret : give_text(driver_version(), version, size));
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    struct call call;
    nvmlReturn_t ret = call_begin(&call, __func__);
    return call_end(&call, ret != NVML_SUCCESS ? ret : give_text(nvml_version(), version, size));
}

static nvmlReturn_t give_cuda(const char *function, int *version)
{
    struct call call;
    nvmlReturn_t ret = call_begin(&call, function);
    if (ret == NVML_SUCCESS && !version)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS)
        *version = 13000;
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return give_cuda(__func__, version);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return give_cuda(__func__, version);
}
