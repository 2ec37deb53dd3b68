/* SPDX-License-Identifier: Apache-2.0 */
#include "condition_fields.h"

enum {
    NVML_FI_DEV_ECC_SBE_VOL_TOTAL = 3,
    NVML_FI_DEV_ECC_DBE_VOL_TOTAL = 4,
    NVML_FI_DEV_ECC_SBE_AGG_TOTAL = 5,
    NVML_FI_DEV_ECC_DBE_AGG_TOTAL = 6,
    NVML_FI_DEV_RETIRED_SBE = 29,
    NVML_FI_DEV_RETIRED_DBE = 30,
    NVML_FI_DEV_RETIRED_PENDING = 31,
    NVML_FI_DEV_MEMORY_TEMP = 82,
    NVML_FI_DEV_NVLINK_LINK_COUNT = 91,
    NVML_FI_DEV_PCIE_REPLAY_COUNTER = 94,
    NVML_FI_DEV_REMAPPED_COR = 142,
    NVML_FI_DEV_REMAPPED_UNC = 143,
    NVML_FI_DEV_REMAPPED_PENDING = 144,
    NVML_FI_DEV_REMAPPED_FAILURE = 145,
};

/* A field is one condition or the sum of two; `wide` is a 64-bit number. */
static const struct { unsigned id; bool wide; enum condition first, second; } FIELDS[] = {
    {NVML_FI_DEV_ECC_SBE_VOL_TOTAL, true, ECC_CORRECTED_VOLATILE_DRAM, ECC_CORRECTED_VOLATILE_SRAM},
    {NVML_FI_DEV_ECC_DBE_VOL_TOTAL, true, ECC_UNCORRECTED_VOLATILE_DRAM,
     ECC_UNCORRECTED_VOLATILE_SRAM},
    {NVML_FI_DEV_ECC_SBE_AGG_TOTAL, true, ECC_CORRECTED_AGGREGATE_DRAM,
     ECC_CORRECTED_AGGREGATE_SRAM},
    {NVML_FI_DEV_ECC_DBE_AGG_TOTAL, true, ECC_UNCORRECTED_AGGREGATE_DRAM,
     ECC_UNCORRECTED_AGGREGATE_SRAM},
    {NVML_FI_DEV_RETIRED_SBE, true, PAGES_SINGLE, PAGES_SINGLE},
    {NVML_FI_DEV_RETIRED_DBE, true, PAGES_DOUBLE, PAGES_DOUBLE},
    {NVML_FI_DEV_RETIRED_PENDING, true, PAGES_PENDING, PAGES_PENDING},
    {NVML_FI_DEV_MEMORY_TEMP, false, TEMPERATURE_MEMORY, TEMPERATURE_MEMORY},
    {NVML_FI_DEV_NVLINK_LINK_COUNT, false, NVLINK_COUNT, NVLINK_COUNT},
    {NVML_FI_DEV_PCIE_REPLAY_COUNTER, true, PCIE_REPLAYS, PCIE_REPLAYS},
    {NVML_FI_DEV_REMAPPED_COR, false, ROWS_CORRECTED, ROWS_CORRECTED},
    {NVML_FI_DEV_REMAPPED_UNC, false, ROWS_UNCORRECTED, ROWS_UNCORRECTED},
    {NVML_FI_DEV_REMAPPED_PENDING, false, ROWS_PENDING, ROWS_PENDING},
    {NVML_FI_DEV_REMAPPED_FAILURE, false, ROWS_FAILURE, ROWS_FAILURE},
};

static bool has(const struct call *call, enum condition what)
{
    const struct device *gpu = call->device;
    if (what >= ECC_CORRECTED_VOLATILE_DRAM && what <= ECC_UNCORRECTED_AGGREGATE_SRAM)
        return condition(gpu, ECC_MODE, call->step_ms) != 0;
    if (what >= PAGES_SINGLE && what <= PAGES_PENDING)
        return retires_pages(gpu);
    if (what >= ROWS_CORRECTED && what <= ROWS_FAILURE)
        return remaps_rows(gpu);
    return true;
}

nvmlReturn_t give_condition_field(const struct call *call, nvmlFieldValue_t *field)
{
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        if (FIELDS[i].id != field->field_id || !has(call, FIELDS[i].first))
            continue;
        int64_t value = condition(call->device, FIELDS[i].first, call->step_ms);
        if (FIELDS[i].second != FIELDS[i].first)
            value += condition(call->device, FIELDS[i].second, call->step_ms);
        field->value_type = FIELDS[i].wide ? NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
                                           : NVML_VALUE_TYPE_UNSIGNED_INT;
        field->value.ull = (unsigned long long)value;
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_SUPPORTED;
}
