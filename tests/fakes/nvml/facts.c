/* SPDX-License-Identifier: Apache-2.0 */
#include "facts.h"

#include <stdio.h>
#include <string.h>

#include "mig_facts.h"
#include "words.h"

enum { MAX_FIELDS = 16 };

/* gpu UUID AT INDEX MINOR ARCH MEMORY_MIB MIG IDLE_MW MAX_MW COUNTER_START_MJ C2C PCI NAME... */
static bool apply_gpu(char **f)
{
    struct device gpu = {.present = true, .temperature_c = USUAL_TEMPERATURE_C};
    gpu.arch = architecture_named(f[4]);
    bool valid = gpu.arch && !world_find(f[0]) && word(f[0], gpu.uuid) && number(f[1], &gpu.start_ms)
        && count_of(f[2], &gpu.index) && !world_gpu(gpu.index) && count_of(f[3], &gpu.minor)
        && number(f[5], &gpu.memory_mib) && count_of(f[6], &gpu.mig_current)
        && number(f[7], &gpu.idle_mw) && number(f[8], &gpu.max_mw)
        && number(f[9], &gpu.counter_start_mj) && flag(f[10], &gpu.c2c)
        && sscanf(f[11], "%x:%x:%x", &gpu.pci_domain, &gpu.pci_bus, &gpu.pci_slot) == 3
        && word(f[12], gpu.name) && track_set(&gpu.power, gpu.start_ms, gpu.idle_mw);
    gpu.mig_pending = gpu.mig_current;
    struct device *place = valid ? world_add_device() : NULL;
    if (place)
        *place = gpu;
    else
        track_clear(&gpu.power);
    return place != NULL;
}

/* A destroyed instance may still be told its last power. */
static struct device *find_present_or_past(const char *uuid)
{
    struct device *device = world_find(uuid);
    for (size_t i = world.device_count; !device && i > 0; i--)
        if (!strcmp(world.devices[i - 1].uuid, uuid))
            device = &world.devices[i - 1];
    return device;
}

/* power UUID AT MW|idle */
static bool apply_power(char **f)
{
    struct device *device = find_present_or_past(f[0]);
    int64_t at_ms, mw;
    if (!device || !number(f[1], &at_ms))
        return false;
    if (!strcmp(f[2], "idle"))
        mw = device->idle_mw;
    else if (!number(f[2], &mw))
        return false;
    return track_set(&device->power, at_ms, mw);
}

/* util UUID AT GPU MEMORY SM OCCUPANCY DRAM, in percent */
static bool apply_util(char **f)
{
    struct device *device = world_find(f[0]);
    int64_t at_ms, percent;
    if (!device || !number(f[1], &at_ms))
        return false;
    for (int i = 0; i < UTIL_COUNT; i++)
        if (!number(f[2 + i], &percent) || !track_set(&device->util[i], at_ms, percent))
            return false;
    return true;
}

static bool apply_reset(char **f)
{
    struct device *gpu = find_gpu(f[0]);
    int64_t at_ms;
    if (!gpu || !number(f[1], &at_ms) || !track_set(&gpu->resets, at_ms, 0))
        return false;
    gpu->mig_current = gpu->mig_pending;
    return true;
}

static bool apply_health(char **f)
{
    static const char *const STATES[] = {"ok", "lost", "reset-required"};
    struct device *gpu = find_gpu(f[0]);
    for (int i = 0; gpu && i < 3; i++)
        if (!strcmp(f[1], STATES[i])) {
            gpu->health = (enum health)i;
            return true;
        }
    return false;
}

static void forget_process(struct device *device, unsigned pid)
{
    for (size_t i = 0; i < device->process_count; i++)
        if (device->processes[i].pid == pid)
            device->processes[i--] = device->processes[--device->process_count];
}

/* process UUID PID MEMORY_MIB|- SM_PERCENT */
static bool apply_process(char **f)
{
    struct device *device = world_find(f[0]);
    struct process process = {.memory_mib = -1};
    if (!device || !count_of(f[1], &process.pid) || !count_of(f[3], &process.sm_util)
        || (strcmp(f[2], "-") && !number(f[2], &process.memory_mib)))
        return false;
    forget_process(device, process.pid);
    if (device->process_count == MAX_PROCESSES)
        return false;
    device->processes[device->process_count++] = process;
    return true;
}

static bool apply_process_gone(char **f)
{
    struct device *device = find_present_or_past(f[0]);
    unsigned pid;
    if (!device || !count_of(f[1], &pid))
        return false;
    forget_process(device, pid);
    return true;
}

/* driver AT 0|1: unloading happens at once; loading starts every counter at 0. */
static bool apply_driver(char **f)
{
    int64_t at_ms;
    bool loaded;
    if (!number(f[0], &at_ms) || !flag(f[1], &loaded))
        return false;
    if (loaded && world.driver_unloaded) {
        world.driver_epoch++;
        track_set(&world.driver_loads, at_ms, 0);
    }
    world.driver_unloaded = !loaded;
    return true;
}

static bool apply_hide(char **f) { return world_rule(RULE_HIDE, f[0], "*", 1); }
static bool apply_show(char **f) { return world_rule(RULE_HIDE, f[0], "*", 0); }

/* fail FUNCTION UUID|* CODE, code 0 takes it back */
static bool apply_fail(char **f)
{
    int64_t code;
    return number(f[2], &code) && world_rule(RULE_FAIL, f[0], f[1], code);
}

static bool apply_slow(char **f)
{
    int64_t delay_ms;
    return number(f[1], &delay_ms) && delay_ms >= 0 && world_rule(RULE_SLOW, f[0], "*", delay_ms);
}

static bool apply_clock(char **f)
{
    world.clock_stopped = strcmp(f[0], "real") != 0;
    return !world.clock_stopped || (number(f[0], &world.stopped_ms) && world.stopped_ms >= 0);
}

static bool apply_temperature(char **f)
{
    struct device *gpu = find_gpu(f[0]);
    return gpu && count_of(f[1], &gpu->temperature_c);
}

/* kill FUNCTION before|after COUNT, count 0 takes it back */
static bool apply_kill(char **f)
{
    int64_t count;
    bool before = !strcmp(f[1], "before");
    return number(f[2], &count) && count >= 0 && (before || !strcmp(f[1], "after"))
        && world_rule(before ? RULE_KILL_BEFORE : RULE_KILL_AFTER, f[0], "*", count);
}

/* versions DRIVER NVML: what runs in the kernel, and what this library is. */
static bool apply_versions(char **f)
{
    return word(f[0], world.driver_version) && word(f[1], world.nvml_version);
}

static const struct { const char *name; int fields; bool (*apply)(char **); } FACTS[] = {
    {"gpu", 13, apply_gpu},          {"kill", 3, apply_kill},
    {"power", 3, apply_power},       {"util", 7, apply_util},
    {"reset", 2, apply_reset},       {"health", 2, apply_health},
    {"process", 4, apply_process},   {"process-gone", 2, apply_process_gone},
    {"driver", 2, apply_driver},     {"hide", 1, apply_hide},
    {"show", 1, apply_show},         {"fail", 3, apply_fail},
    {"slow", 2, apply_slow},         {"clock", 1, apply_clock},
    {"temperature", 2, apply_temperature},
    {"instance", 11, fact_instance}, {"remove-instance", 1, fact_remove_instance},
    {"gpu-instance", 4, fact_gpu_instance},
    {"remove-gpu-instance", 2, fact_remove_gpu_instance},
    {"compute-instance", 6, fact_compute_instance},
    {"remove-compute-instance", 1, fact_remove_compute_instance},
    {"clear-instances", 1, fact_clear_instances},
    {"profile", 11, fact_profile},   {"mig", 3, fact_mig},
    {"condition", 3, fact_condition}, {"nvlink", 3, fact_nvlink},
    {"nvlink-error", 4, fact_nvlink_error}, {"versions", 2, apply_versions},
    {"healthy", 1, fact_healthy},
};

/* Split at blanks; the last of `fields` words takes the rest of the line. */
static int split(char *line, char **words, int fields)
{
    int count = 0;
    while (count < fields && *(line += strspn(line, " "))) {
        words[count++] = line;
        if (count == fields)
            break;
        line += strcspn(line, " ");
        if (*line)
            *line++ = '\0';
    }
    return count;
}

bool fact_apply(char *line)
{
    char *words[MAX_FIELDS];
    char *rest = line + strspn(line, " ");
    if (*rest == '\0' || *rest == '#')
        return true;
    size_t length = strcspn(rest, " ");
    for (size_t i = 0; i < sizeof FACTS / sizeof *FACTS; i++) {
        if (strlen(FACTS[i].name) != length || strncmp(rest, FACTS[i].name, length))
            continue;
        return split(rest + length, words, FACTS[i].fields) == FACTS[i].fields
            && FACTS[i].apply(words);
    }
    return false;
}
