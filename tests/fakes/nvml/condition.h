/* SPDX-License-Identifier: Apache-2.0 */
/* What a health check reads of a board. What no fact has told is as on a healthy one. */
#ifndef FAKE_NVML_CONDITION_H
#define FAKE_NVML_CONDITION_H

#include <stdbool.h>
#include <stdint.h>

struct device;

/* The order matters to ecc.c and links.c, which count on from the first of a group. */
enum condition {
    ECC_MODE, ECC_PENDING_MODE,
    ECC_CORRECTED_VOLATILE_DRAM, ECC_CORRECTED_AGGREGATE_DRAM,
    ECC_UNCORRECTED_VOLATILE_DRAM, ECC_UNCORRECTED_AGGREGATE_DRAM,
    ECC_CORRECTED_VOLATILE_SRAM, ECC_CORRECTED_AGGREGATE_SRAM,
    ECC_UNCORRECTED_VOLATILE_SRAM, ECC_UNCORRECTED_AGGREGATE_SRAM,
    PAGES_SINGLE, PAGES_DOUBLE, PAGES_PENDING,
    ROWS_CORRECTED, ROWS_UNCORRECTED, ROWS_PENDING, ROWS_FAILURE,
    BANKS_MAX, BANKS_HIGH, BANKS_PARTIAL, BANKS_LOW, BANKS_NONE,
    REASONS, PERFORMANCE_STATE, PERSISTENCE,
    CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO, CLOCK_MAX_SM, CLOCK_MAX_MEMORY, CLOCK_MAX_VIDEO,
    PCIE_GENERATION, PCIE_WIDTH, PCIE_MAX_GENERATION, PCIE_MAX_WIDTH, PCIE_REPLAYS,
    NVLINK_COUNT,
    TEMPERATURE_MEMORY, TEMPERATURE_SHUTDOWN, TEMPERATURE_SLOWDOWN, TEMPERATURE_MEMORY_MAX,
    TEMPERATURE_GPU_MAX,
    POWER_LIMIT, POWER_DEFAULT, POWER_MIN, POWER_MAX, POWER_ENFORCED, POWER_SHOWN,
    MEMORY_HELD,
    CONDITION_COUNT,
};

enum { MAX_LINKS = 18, LINK_ERRORS = 5 };
struct link { bool down; int64_t errors[LINK_ERRORS]; };

struct conditions {
    int64_t values[CONDITION_COUNT];
    bool told[CONDITION_COUNT];
    struct link links[MAX_LINKS];
};

/* The value of a device at a time. */
int64_t condition(const struct device *device, enum condition what, int64_t t_ms);
/* Whether the board's generation has remapped rows (Ampere and newer) or retired pages. */
bool remaps_rows(const struct device *gpu);
bool retires_pages(const struct device *gpu);
unsigned nvlink_version(const struct device *gpu);

bool fact_condition(char **f);
bool fact_healthy(char **f);
bool fact_nvlink(char **f);
bool fact_nvlink_error(char **f);

#endif
