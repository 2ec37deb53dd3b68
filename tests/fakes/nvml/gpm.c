/* SPDX-License-Identifier: Apache-2.0 */
/* GPU performance monitoring, Hopper or newer: mean utilisation between two samples. */
#include "call.h"

#include <stdlib.h>

struct gpm_sample { const struct device *device; int64_t at_ms; }; /* device NULL: never taken */

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t handle, nvmlGpmSupport_t *support)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, support);
    if (ret == NVML_SUCCESS && support->version != NVML_GPM_SUPPORT_VERSION)
        ret = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (ret == NVML_SUCCESS)
        support->is_supported = call.device->arch->gpm;
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
    struct call call;
    nvmlReturn_t ret = call_begin(&call, __func__);
    if (ret == NVML_SUCCESS && !sample)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS && !(*sample = calloc(1, sizeof **sample)))
        ret = NVML_ERROR_MEMORY;
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    if (!sample)
        return NVML_ERROR_INVALID_ARGUMENT;
    free(sample);
    return NVML_SUCCESS;
}

static nvmlReturn_t take_sample(const struct call *call, const struct device *device,
                                nvmlGpmSample_t sample)
{
    const struct device *gpu = device->board ? device->board : device;
    if (!gpu->arch->gpm)
        return NVML_ERROR_NOT_SUPPORTED;
    sample->device = device;
    sample->at_ms = call->now_ms;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t handle, nvmlGpmSample_t sample)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, ANY_DEVICE, sample);
    return call_end(&call, ret ? ret : take_sample(&call, call.device, sample));
}

static const struct device *find_gpu_instance(const struct device *gpu, unsigned gi)
{
    for (size_t i = 0; i < world.device_count; i++) {
        const struct device *device = &world.devices[i];
        if (device->present && device->board == gpu && device->gi == gi)
            return device;
    }
    return NULL;
}

static nvmlReturn_t take_instance_sample(const struct call *call, unsigned gi,
                                         nvmlGpmSample_t sample)
{
    if (!call->device->arch->gpm || !call->device->mig_current)
        return NVML_ERROR_NOT_SUPPORTED;
    const struct device *instance = find_gpu_instance(call->device, gi);
    return instance ? take_sample(call, instance, sample) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t handle, unsigned gi, nvmlGpmSample_t sample)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, sample);
    return call_end(&call, ret ? ret : take_instance_sample(&call, gi, sample));
}

static double mean_percent(const struct device *device, enum util what, int64_t from, int64_t to)
{
    return (double)track_area(&device->util[what], from, to) / (double)(to - from);
}

/* A MIG board is as busy as its instances, each weighted by its slices. */
static double busy_percent(const struct device *device, enum util what, int64_t from, int64_t to)
{
    if (!device->mig_current)
        return mean_percent(device, what, from, to);
    double sum = 0;
    for (size_t i = 0; i < world.device_count; i++)
        if (world.devices[i].board == device)
            sum += world.devices[i].slices * mean_percent(&world.devices[i], what, from, to);
    return sum / MAX_MIG;
}

static nvmlReturn_t measure(nvmlGpmMetric_t *metric, const struct gpm_sample *first,
                            const struct gpm_sample *last)
{
    static const struct { unsigned id; enum util what; const char *name; } METRICS[] = {
        {NVML_GPM_METRIC_GRAPHICS_UTIL, UTIL_GPU, "Graphics Engine Util"},
        {NVML_GPM_METRIC_SM_UTIL, UTIL_SM, "SM Util"},
        {NVML_GPM_METRIC_SM_OCCUPANCY, UTIL_OCCUPANCY, "SM Occupancy"},
        {NVML_GPM_METRIC_DRAM_BW_UTIL, UTIL_DRAM, "DRAM Bandwidth Util"},
    };
    if (last->at_ms - first->at_ms <= STEP_MS)
        return NVML_ERROR_NO_DATA; /* both saw the same refresh of the hardware's counters */
    int64_t from = first->at_ms - first->at_ms % STEP_MS, to = last->at_ms - last->at_ms % STEP_MS;
    for (size_t i = 0; i < sizeof METRICS / sizeof *METRICS; i++)
        if (METRICS[i].id == metric->id) {
            metric->value = busy_percent(first->device, METRICS[i].what, from, to);
            metric->info.short_name = metric->info.long_name = METRICS[i].name;
            metric->info.unit = "%";
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_SUPPORTED;
}

static bool is_pair(const struct gpm_sample *first, const struct gpm_sample *last)
{
    return first && last && first->device && first->device == last->device;
}

EXPORT nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *request)
{
    struct call call;
    nvmlReturn_t ret = call_begin(&call, __func__);
    if (ret == NVML_SUCCESS && !request)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS && request->version != NVML_GPM_METRICS_GET_VERSION)
        ret = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (ret == NVML_SUCCESS && !is_pair(request->sample1, request->sample2))
        ret = NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; ret == NVML_SUCCESS && i < request->count; i++) {
        nvmlGpmMetric_t *metric = &request->metrics[i];
        metric->nvml_return = measure(metric, request->sample1, request->sample2);
    }
    return call_end(&call, ret);
}
