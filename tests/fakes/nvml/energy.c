/* SPDX-License-Identifier: Apache-2.0 */
/* The energy counter, power, and the field values that repeat them. */
#include "call.h"
#include "condition_fields.h"

#include <stdio.h>

static int64_t at_least(int64_t value, int64_t floor) { return value > floor ? value : floor; }

/* A board draws its base power and what each of its instances, past ones too, adds to it. */
static int64_t board_area_uj(const struct device *gpu, int64_t from_ms, int64_t to_ms)
{
    int64_t area = 0;
    for (size_t i = 0; i < world.device_count; i++) {
        const struct device *device = &world.devices[i];
        if (device == gpu || device->board == gpu)
            area += track_area(&device->power, from_ms, to_ms);
    }
    return area;
}

static int64_t board_power_mw(const struct device *gpu, int64_t t_ms)
{
    int64_t power = 0;
    for (size_t i = 0; i < world.device_count; i++) {
        const struct device *device = &world.devices[i];
        if (device == gpu || device->board == gpu)
            power += track_value(&device->power, t_ms);
    }
    return power;
}

/* A sensor may contradict the counter, as it does on some consumer cards. */
static int64_t shown(const struct call *call, int64_t power_mw)
{
    return power_mw * condition(call->device, POWER_SHOWN, call->step_ms) / 1000;
}

static int64_t momentary_power_mw(const struct call *call)
{
    return shown(call, board_power_mw(call->device, call->step_ms));
}

static int64_t average_power_mw(const struct call *call)
{
    int64_t from_ms = at_least(call->step_ms - AVERAGE_MS, call->device->start_ms);
    if (call->step_ms <= from_ms)
        return momentary_power_mw(call);
    int64_t area_uj = board_area_uj(call->device, from_ms, call->step_ms);
    return shown(call, area_uj / (call->step_ms - from_ms));
}

/* mJ since the driver's last load or the GPU's last reset, up to the start of this 100 ms step. */
static int64_t counter_mj(const struct call *call)
{
    const struct device *gpu = call->device;
    int64_t reset_ms = track_last_at(&gpu->resets, call->step_ms, INT64_MIN);
    int64_t load_ms = track_last_at(&world.driver_loads, call->now_ms, INT64_MIN);
    int64_t start_ms = at_least(at_least(reset_ms, load_ms), gpu->start_ms);
    bool first = reset_ms == INT64_MIN && load_ms < gpu->start_ms;
    return (first ? gpu->counter_start_mj : 0) + board_area_uj(gpu, start_ms, call->step_ms) / 1000;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t handle,
                                                        unsigned long long *energy_mj)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, energy_mj);
    if (ret == NVML_SUCCESS && !call.device->arch->energy_counter)
        ret = NVML_ERROR_NOT_SUPPORTED;
    if (ret == NVML_SUCCESS)
        *energy_mj = (unsigned long long)counter_mj(&call);
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t handle, unsigned *power_mw)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, power_mw);
    if (ret == NVML_SUCCESS)
        *power_mw = (unsigned)(call.device->arch->average_power
                                   ? average_power_mw(&call)
                                   : momentary_power_mw(&call));
    return call_end(&call, ret);
}

static nvmlReturn_t check_scope(const struct device *gpu, unsigned scope)
{
    if (scope >= NVML_POWER_SCOPE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (scope == NVML_POWER_SCOPE_GPU || (scope == NVML_POWER_SCOPE_MODULE && gpu->c2c))
        return NVML_SUCCESS;
    return NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t give_unsigned(nvmlFieldValue_t *field, int64_t value)
{
    field->value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    field->value.ui = (unsigned)value;
    return NVML_SUCCESS;
}

static nvmlReturn_t give_energy(const struct call *call, nvmlFieldValue_t *field)
{
    if (!call->device->arch->energy_counter)
        return NVML_ERROR_NOT_SUPPORTED;
    field->value_type = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    field->value.ull = (unsigned long long)counter_mj(call);
    return NVML_SUCCESS;
}

static nvmlReturn_t give_scoped(const struct call *call, nvmlFieldValue_t *field)
{
    nvmlReturn_t ret = check_scope(call->device, field->scope_id);
    if (ret != NVML_SUCCESS)
        return ret;
    switch (field->field_id) {
    case NVML_FI_DEV_ENERGY:
        return give_energy(call, field);
    case NVML_FI_DEV_POWER_INSTANT:
        return give_unsigned(field, momentary_power_mw(call));
    case NVML_FI_DEV_POWER_AVERAGE:
        return call->device->arch->average_power ? give_unsigned(field, average_power_mw(call))
                                                 : NVML_ERROR_NOT_SUPPORTED;
    default:
        return give_unsigned(field, condition(call->device, POWER_ENFORCED, call->step_ms));
    }
}

static nvmlReturn_t give_field(const struct call *call, nvmlFieldValue_t *field)
{
    char name[32];
    snprintf(name, sizeof name, "field:%u", field->field_id);
    nvmlReturn_t told = (nvmlReturn_t)world_ruled(RULE_FAIL, name, call->device);
    if (told != NVML_SUCCESS)
        return told;
    if (call->device->board)
        return NVML_ERROR_NOT_SUPPORTED;
    switch (field->field_id) {
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
        return give_energy(call, field);
    case NVML_FI_DEV_ENERGY:
    case NVML_FI_DEV_POWER_INSTANT:
    case NVML_FI_DEV_POWER_AVERAGE:
    case NVML_FI_DEV_POWER_CURRENT_LIMIT:
        return give_scoped(call, field);
    default:
        return give_condition_field(call, field);
    }
}

/* Succeeds even if every field fails: each field has its own code. */
EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count,
                                             nvmlFieldValue_t *fields)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, ANY_DEVICE, fields);
    if (ret == NVML_SUCCESS && count <= 0)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; ret == NVML_SUCCESS && i < count; i++) {
        fields[i].timestamp_us = call.step_ms * 1000;
        fields[i].latency_us = 0;
        fields[i].nvml_return = give_field(&call, &fields[i]);
    }
    return call_end(&call, ret);
}
