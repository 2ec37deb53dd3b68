/* SPDX-License-Identifier: Apache-2.0 */
#include "condition.h"

#include <string.h>

#include "words.h"

static const char *const NAMES[CONDITION_COUNT] = {
    [ECC_MODE] = "ecc.mode",
    [ECC_PENDING_MODE] = "ecc.pending-mode",
    [ECC_CORRECTED_VOLATILE_DRAM] = "ecc.corrected.volatile.dram",
    [ECC_CORRECTED_AGGREGATE_DRAM] = "ecc.corrected.aggregate.dram",
    [ECC_UNCORRECTED_VOLATILE_DRAM] = "ecc.uncorrected.volatile.dram",
    [ECC_UNCORRECTED_AGGREGATE_DRAM] = "ecc.uncorrected.aggregate.dram",
    [ECC_CORRECTED_VOLATILE_SRAM] = "ecc.corrected.volatile.sram",
    [ECC_CORRECTED_AGGREGATE_SRAM] = "ecc.corrected.aggregate.sram",
    [ECC_UNCORRECTED_VOLATILE_SRAM] = "ecc.uncorrected.volatile.sram",
    [ECC_UNCORRECTED_AGGREGATE_SRAM] = "ecc.uncorrected.aggregate.sram",
    [PAGES_SINGLE] = "pages.single",
    [PAGES_DOUBLE] = "pages.double",
    [PAGES_PENDING] = "pages.pending",
    [ROWS_CORRECTED] = "rows.corrected",
    [ROWS_UNCORRECTED] = "rows.uncorrected",
    [ROWS_PENDING] = "rows.pending",
    [ROWS_FAILURE] = "rows.failure",
    [BANKS_MAX] = "banks.max",
    [BANKS_HIGH] = "banks.high",
    [BANKS_PARTIAL] = "banks.partial",
    [BANKS_LOW] = "banks.low",
    [BANKS_NONE] = "banks.none",
    [REASONS] = "reasons",
    [PERFORMANCE_STATE] = "performance-state",
    [PERSISTENCE] = "persistence",
    [CLOCK_SM] = "clock.sm",
    [CLOCK_MEMORY] = "clock.memory",
    [CLOCK_VIDEO] = "clock.video",
    [CLOCK_MAX_SM] = "clock.max-sm",
    [CLOCK_MAX_MEMORY] = "clock.max-memory",
    [CLOCK_MAX_VIDEO] = "clock.max-video",
    [PCIE_GENERATION] = "pcie.generation",
    [PCIE_WIDTH] = "pcie.width",
    [PCIE_MAX_GENERATION] = "pcie.max-generation",
    [PCIE_MAX_WIDTH] = "pcie.max-width",
    [PCIE_REPLAYS] = "pcie.replays",
    [NVLINK_COUNT] = "nvlink.count",
    [TEMPERATURE_MEMORY] = "temperature.memory",
    [TEMPERATURE_SHUTDOWN] = "temperature.shutdown",
    [TEMPERATURE_SLOWDOWN] = "temperature.slowdown",
    [TEMPERATURE_MEMORY_MAX] = "temperature.memory-max",
    [TEMPERATURE_GPU_MAX] = "temperature.gpu-max",
    [POWER_LIMIT] = "power.limit",
    [POWER_DEFAULT] = "power.default",
    [POWER_MIN] = "power.min",
    [POWER_MAX] = "power.max",
    [POWER_ENFORCED] = "power.enforced",
    [POWER_SHOWN] = "power.shown-permille",
    [MEMORY_HELD] = "memory.held",
};
static const char *const LINK_ERROR_NAMES[LINK_ERRORS] = {
    "replay", "recovery", "crc-flit", "crc-data", "ecc-data",
};

/* The usual board of each generation. */
struct generation {
    const char *arch;
    unsigned pcie, links, nvlink, idle_mhz, sm_mhz, memory_mhz;
};
static const struct generation GENERATIONS[] = {
    {"kepler", 3, 0, 0, 324, 875, 2505},      {"maxwell", 3, 0, 0, 405, 1114, 3505},
    {"pascal", 3, 4, 1, 405, 1328, 715},      {"volta", 3, 6, 2, 135, 1530, 877},
    {"turing", 3, 0, 0, 300, 1590, 5001},     {"ga100", 4, 12, 4, 210, 1410, 1215},
    {"ampere", 4, 0, 0, 210, 1740, 7251},     {"ada", 4, 0, 0, 210, 2520, 9001},
    {"hopper", 5, 18, 6, 345, 1980, 2619},    {"blackwell", 5, 18, 7, 120, 1965, 3996},
};

static const struct generation *generation_of(const struct device *gpu)
{
    size_t i = 0;
    while (strcmp(GENERATIONS[i].arch, gpu->arch->name))
        i++;
    return &GENERATIONS[i];
}

bool remaps_rows(const struct device *gpu) { return gpu->arch->nvml_id >= 7; }
bool retires_pages(const struct device *gpu) { return gpu->arch->nvml_id < 7; }
unsigned nvlink_version(const struct device *gpu) { return generation_of(gpu)->nvlink; }

/* A process or utilisation, on the board or one of its instances. */
static bool is_busy(const struct device *gpu, int64_t t_ms)
{
    for (size_t i = 0; i < world.device_count; i++) {
        const struct device *part = &world.devices[i];
        if (part->present && (part == gpu || part->board == gpu)
            && (part->process_count || track_value(&part->util[UTIL_GPU], t_ms)))
            return true;
    }
    return false;
}

/* NVLink joins the boards of a baseboard; those with a PCIe name have none. */
static unsigned usual_links(const struct device *gpu)
{
    return strstr(gpu->name, "PCI") ? 0 : generation_of(gpu)->links;
}

static int64_t speed(const struct device *gpu, enum condition what, int64_t t_ms)
{
    const struct generation *usual = generation_of(gpu);
    switch (what) {
    case REASONS: return !is_busy(gpu, t_ms); /* 1: GpuIdle */
    case CLOCK_SM: return is_busy(gpu, t_ms) ? condition(gpu, CLOCK_MAX_SM, t_ms) : usual->idle_mhz;
    case CLOCK_MEMORY: return condition(gpu, CLOCK_MAX_MEMORY, t_ms);
    case CLOCK_VIDEO: return is_busy(gpu, t_ms) ? condition(gpu, CLOCK_MAX_VIDEO, t_ms)
                                                : usual->idle_mhz;
    case CLOCK_MAX_SM: return usual->sm_mhz;
    case CLOCK_MAX_MEMORY: return usual->memory_mhz;
    case CLOCK_MAX_VIDEO: return usual->sm_mhz * 9 / 10;
    case PCIE_GENERATION: return condition(gpu, PCIE_MAX_GENERATION, t_ms);
    case PCIE_WIDTH: return condition(gpu, PCIE_MAX_WIDTH, t_ms);
    case PCIE_MAX_GENERATION: return usual->pcie;
    case PCIE_MAX_WIDTH: return 16;
    default: return usual_links(gpu);
    }
}

static int64_t healthy(const struct device *gpu, enum condition what, int64_t t_ms)
{
    switch (what) {
    case ECC_MODE: case PERSISTENCE: return 1;
    case ECC_PENDING_MODE: return condition(gpu, ECC_MODE, t_ms);
    case BANKS_MAX: return 640; /* every bank has all of its spare rows */
    case TEMPERATURE_MEMORY: return gpu->temperature_c;
    case TEMPERATURE_SHUTDOWN: return 92;
    case TEMPERATURE_SLOWDOWN: return 89;
    case TEMPERATURE_MEMORY_MAX: return 95;
    case TEMPERATURE_GPU_MAX: return 85;
    case POWER_LIMIT: return condition(gpu, POWER_DEFAULT, t_ms);
    case POWER_DEFAULT: case POWER_MAX: return gpu->max_mw;
    case POWER_MIN: return gpu->max_mw / 4;
    case POWER_SHOWN: return 1000; /* the sensor shows what the counter counts */
    case POWER_ENFORCED: return condition(gpu, POWER_LIMIT, t_ms);
    case REASONS: case CLOCK_SM: case CLOCK_MEMORY: case CLOCK_VIDEO: case CLOCK_MAX_SM:
    case CLOCK_MAX_MEMORY: case CLOCK_MAX_VIDEO: case PCIE_GENERATION: case PCIE_WIDTH:
    case PCIE_MAX_GENERATION: case PCIE_MAX_WIDTH: case NVLINK_COUNT:
        return speed(gpu, what, t_ms);
    default: return 0; /* errors, pages, rows, replays, held memory, performance state */
    }
}

int64_t condition(const struct device *device, enum condition what, int64_t t_ms)
{
    const struct conditions *all = &device->conditions;
    if (all->told[what])
        return all->values[what];
    return device->board ? 0 : healthy(device, what, t_ms);
}

static int named(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(name, names[i]))
            return i;
    return -1;
}

/* condition UUID WHAT VALUE|-, "-": healthy again. An instance has memory.held only. */
bool fact_condition(char **f)
{
    struct device *device = world_find(f[0]);
    int what = named(f[1], NAMES, CONDITION_COUNT);
    int64_t value = 0;
    bool told = strcmp(f[2], "-") != 0;
    if (!device || what < 0 || (device->board && what != MEMORY_HELD)
        || (told && (!number(f[2], &value) || value < 0))
        || (what == NVLINK_COUNT && value > MAX_LINKS))
        return false;
    device->conditions.values[what] = value;
    device->conditions.told[what] = told;
    return true;
}

/* healthy GPU: all conditions of the board and its instances are taken back. */
bool fact_healthy(char **f)
{
    struct device *gpu = find_gpu(f[0]);
    for (size_t i = 0; gpu && i < world.device_count; i++)
        if (&world.devices[i] == gpu || world.devices[i].board == gpu)
            world.devices[i].conditions = (struct conditions){0};
    if (gpu) {
        gpu->health = HEALTHY;
        gpu->temperature_c = USUAL_TEMPERATURE_C;
    }
    return gpu != NULL;
}

static struct link *find_link(char **f)
{
    struct device *gpu = find_gpu(f[0]);
    unsigned index;
    return gpu && count_of(f[1], &index) && index < MAX_LINKS ? &gpu->conditions.links[index] : NULL;
}

/* nvlink GPU LINK up|down */
bool fact_nvlink(char **f)
{
    struct link *link = find_link(f);
    bool down = !strcmp(f[2], "down");
    if (!link || (!down && strcmp(f[2], "up")))
        return false;
    link->down = down;
    return true;
}

/* nvlink-error GPU LINK KIND COUNT */
bool fact_nvlink_error(char **f)
{
    struct link *link = find_link(f);
    int kind = named(f[2], LINK_ERROR_NAMES, LINK_ERRORS);
    return link && kind >= 0 && number(f[3], &link->errors[kind]);
}
