/* SPDX-License-Identifier: Apache-2.0 */
/* Memory errors, and what the board did about them: retired pages, remapped rows. */
#include "call.h"

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t handle, unsigned *current, unsigned *pending)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, current);
    if (ret == NVML_SUCCESS && !pending)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS) {
        *current = (unsigned)condition(call.device, ECC_MODE, call.step_ms);
        *pending = (unsigned)condition(call.device, ECC_PENDING_MODE, call.step_ms);
    }
    return call_end(&call, ret);
}

/* type: 0 corrected, 1 uncorrected; counter: 0 volatile, 1 aggregate. Only with ECC on. */
static nvmlReturn_t on_counter(struct call *call, const char *function, nvmlDevice_t handle,
                               unsigned type, unsigned counter, const void *result)
{
    nvmlReturn_t ret = call_device(call, function, handle, GPUS, result);
    if (ret == NVML_SUCCESS && (type > 1 || counter > 1))
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS && !condition(call->device, ECC_MODE, call->step_ms))
        ret = NVML_ERROR_NOT_SUPPORTED;
    return ret;
}

static unsigned long long errors(const struct call *call, enum condition first, unsigned type,
                                 unsigned counter)
{
    enum condition what = (enum condition)(first + 2 * type + counter);
    return (unsigned long long)condition(call->device, what, call->step_ms);
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, unsigned type,
                                                unsigned counter, unsigned long long *count)
{
    struct call call;
    nvmlReturn_t ret = on_counter(&call, __func__, handle, type, counter, count);
    if (ret == NVML_SUCCESS)
        *count = errors(&call, ECC_CORRECTED_VOLATILE_DRAM, type, counter)
               + errors(&call, ECC_CORRECTED_VOLATILE_SRAM, type, counter);
    return call_end(&call, ret);
}

/* Errors are kept for the device memory and for all SRAM together. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t handle, unsigned type,
                                                    unsigned counter, unsigned location,
                                                    unsigned long long *count)
{
    struct call call;
    nvmlReturn_t ret = on_counter(&call, __func__, handle, type, counter, count);
    bool dram = location == NVML_MEMORY_LOCATION_DRAM;
    if (ret == NVML_SUCCESS && location >= NVML_MEMORY_LOCATION_COUNT)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS && !dram && location != NVML_MEMORY_LOCATION_SRAM)
        ret = NVML_ERROR_NOT_SUPPORTED;
    if (ret == NVML_SUCCESS)
        *count = errors(&call, dram ? ECC_CORRECTED_VOLATILE_DRAM : ECC_CORRECTED_VOLATILE_SRAM,
                        type, counter);
    return call_end(&call, ret);
}

static nvmlReturn_t give_pages(const char *function, nvmlDevice_t handle, unsigned cause,
                               unsigned *count, unsigned long long *addresses,
                               unsigned long long *times_us)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, function, handle, GPUS, count);
    if (ret == NVML_SUCCESS && cause >= NVML_PAGE_RETIREMENT_CAUSE_COUNT)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS && !retires_pages(call.device))
        ret = NVML_ERROR_NOT_SUPPORTED;
    if (ret != NVML_SUCCESS)
        return call_end(&call, ret);
    unsigned room = addresses ? *count : 0;
    *count = (unsigned)condition(call.device, cause ? PAGES_DOUBLE : PAGES_SINGLE, call.step_ms);
    if (*count > room)
        return call_end(&call, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < *count; i++) {
        addresses[i] = 0x100000ull * (cause + 1) + 0x1000ull * i;
        if (times_us)
            times_us[i] = (unsigned long long)call.device->start_ms * 1000;
    }
    return call_end(&call, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t handle, unsigned cause, unsigned *count,
                                              unsigned long long *addresses)
{
    return give_pages(__func__, handle, cause, count, addresses, 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t handle, unsigned cause,
                                                 unsigned *count, unsigned long long *addresses,
                                                 unsigned long long *times_us)
{
    return give_pages(__func__, handle, cause, count, addresses, times_us);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t handle, unsigned *pending)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, pending);
    if (ret == NVML_SUCCESS && !retires_pages(call.device))
        ret = NVML_ERROR_NOT_SUPPORTED;
    return give_number(&call, ret, pending,
                       ret ? 0 : (unsigned)condition(call.device, PAGES_PENDING, call.step_ms));
}

static nvmlReturn_t on_rows(struct call *call, const char *function, nvmlDevice_t handle,
                            const void *result)
{
    nvmlReturn_t ret = call_device(call, function, handle, GPUS, result);
    return ret == NVML_SUCCESS && !remaps_rows(call->device) ? NVML_ERROR_NOT_SUPPORTED : ret;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t handle, unsigned *corrected,
                                              unsigned *uncorrected, unsigned *pending,
                                              unsigned *failure)
{
    struct call call;
    nvmlReturn_t ret = on_rows(&call, __func__, handle, corrected);
    if (ret == NVML_SUCCESS && !(uncorrected && pending && failure))
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS) {
        *corrected = (unsigned)condition(call.device, ROWS_CORRECTED, call.step_ms);
        *uncorrected = (unsigned)condition(call.device, ROWS_UNCORRECTED, call.step_ms);
        *pending = (unsigned)condition(call.device, ROWS_PENDING, call.step_ms);
        *failure = (unsigned)condition(call.device, ROWS_FAILURE, call.step_ms);
    }
    return call_end(&call, ret);
}

/* Banks by how many of their spare rows are left. */
EXPORT nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t handle,
                                                      nvmlRowRemapperHistogramValues_t *banks)
{
    struct call call;
    nvmlReturn_t ret = on_rows(&call, __func__, handle, banks);
    if (ret == NVML_SUCCESS)
        *banks = (nvmlRowRemapperHistogramValues_t){
            .max = (unsigned)condition(call.device, BANKS_MAX, call.step_ms),
            .high = (unsigned)condition(call.device, BANKS_HIGH, call.step_ms),
            .partial = (unsigned)condition(call.device, BANKS_PARTIAL, call.step_ms),
            .low = (unsigned)condition(call.device, BANKS_LOW, call.step_ms),
            .none = (unsigned)condition(call.device, BANKS_NONE, call.step_ms),
        };
    return call_end(&call, ret);
}
