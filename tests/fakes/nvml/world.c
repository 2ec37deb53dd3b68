/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <stdio.h>
#include <string.h>

struct world world; /* all zero is the state before the first fact */

static const struct architecture ARCHITECTURES[] = {
    /* name       id  energy average  mig   gpm    c2c    mig without reset */
    {"kepler",    2, false, false, false, false, false, false},
    {"maxwell",   3, false, false, false, false, false, false},
    {"pascal",    4, false, false, false, false, false, false},
    {"volta",     5, true,  false, false, false, false, false},
    {"turing",    6, true,  false, false, false, false, false},
    {"ga100",     7, true,  false, true,  false, false, false},
    {"ampere",    7, true,  true,  true,  false, false, false},
    {"ada",       8, true,  true,  false, false, false, false},
    {"hopper",    9, true,  true,  true,  true,  true, true},
    {"blackwell", 10, true, true,  true,  true,  true, true},
};

const struct architecture *architecture_named(const char *name)
{
    for (size_t i = 0; i < sizeof ARCHITECTURES / sizeof *ARCHITECTURES; i++)
        if (!strcmp(ARCHITECTURES[i].name, name))
            return &ARCHITECTURES[i];
    return NULL;
}

static void device_clear(struct device *device)
{
    track_clear(&device->power);
    track_clear(&device->resets);
    for (int i = 0; i < UTIL_COUNT; i++)
        track_clear(&device->util[i]);
    memset(device, 0, sizeof *device);
}

void world_clear(void)
{
    for (size_t i = 0; i < world.device_count; i++)
        device_clear(&world.devices[i]);
    track_clear(&world.driver_loads);
    world.device_count = world.gpu_instance_count = world.rule_count = 0;
    world.driver_unloaded = world.clock_stopped = false;
    world.driver_epoch = 0;
    world.driver_version[0] = world.nvml_version[0] = '\0';
}

struct device *world_add_device(void)
{
    if (world.device_count == MAX_DEVICES)
        return NULL;
    struct device *device = &world.devices[world.device_count++];
    device->present = true;
    return device;
}

struct device *world_find(const char *uuid)
{
    for (size_t i = 0; i < world.device_count; i++)
        if (world.devices[i].present && !strcmp(world.devices[i].uuid, uuid))
            return &world.devices[i];
    return NULL;
}

struct device *world_gpu(unsigned index)
{
    for (size_t i = 0; i < world.device_count; i++)
        if (!world.devices[i].board && world.devices[i].index == index)
            return &world.devices[i];
    return NULL;
}

struct device *world_instance(const struct device *board, unsigned index)
{
    for (size_t i = 0; i < world.device_count; i++) {
        struct device *device = &world.devices[i];
        if (device->present && device->board == board && device->index == index)
            return device;
    }
    return NULL;
}

unsigned world_gpu_count(void)
{
    unsigned count = 0;
    for (size_t i = 0; i < world.device_count; i++)
        count += !world.devices[i].board;
    return count;
}

bool world_has(const struct device *device)
{
    for (size_t i = 0; i < world.device_count; i++)
        if (&world.devices[i] == device)
            return device->present;
    return false;
}

struct device *world_compute_instance(const struct gpu_instance *instance, unsigned ci)
{
    for (size_t i = 0; i < world.device_count; i++) {
        struct device *device = &world.devices[i];
        if (device->present && device->gpu_instance == instance && device->ci == ci)
            return device;
    }
    return NULL;
}

unsigned world_compute_count(const struct gpu_instance *instance)
{
    unsigned count = 0;
    for (size_t i = 0; i < world.device_count; i++)
        count += world.devices[i].present && world.devices[i].gpu_instance == instance;
    return count;
}

struct gpu_instance *world_add_gpu_instance(struct device *board, unsigned id)
{
    if (world.gpu_instance_count == MAX_GPU_INSTANCES || world_gpu_instance(board, id))
        return NULL;
    struct gpu_instance *instance = &world.gpu_instances[world.gpu_instance_count++];
    *instance = (struct gpu_instance){.board = board, .present = true, .id = id};
    return instance;
}

struct gpu_instance *world_gpu_instance(const struct device *board, unsigned id)
{
    for (size_t i = 0; i < world.gpu_instance_count; i++) {
        struct gpu_instance *instance = &world.gpu_instances[i];
        if (instance->present && instance->board == board && instance->id == id)
            return instance;
    }
    return NULL;
}

bool world_has_gpu_instance(const struct gpu_instance *instance)
{
    for (size_t i = 0; i < world.gpu_instance_count; i++)
        if (&world.gpu_instances[i] == instance)
            return instance->present;
    return false;
}

static bool same_rule(const struct rule *rule, enum rule_kind kind, const char *function,
                      const char *uuid)
{
    return rule->kind == kind && !strcmp(rule->function, function) && !strcmp(rule->uuid, uuid);
}

bool world_rule(enum rule_kind kind, const char *function, const char *uuid, int64_t value)
{
    size_t i = 0;
    while (i < world.rule_count && !same_rule(&world.rules[i], kind, function, uuid))
        i++;
    if (i == MAX_RULES)
        return false;
    struct rule *rule = &world.rules[i];
    rule->kind = kind;
    rule->value = value;
    snprintf(rule->function, sizeof rule->function, "%s", function);
    snprintf(rule->uuid, sizeof rule->uuid, "%s", uuid);
    if (i == world.rule_count)
        world.rule_count++;
    return true;
}

int64_t world_ruled(enum rule_kind kind, const char *function, const struct device *device)
{
    for (size_t i = 0; i < world.rule_count; i++) {
        const struct rule *rule = &world.rules[i];
        if (rule->value && (same_rule(rule, kind, function, "*") ||
                            (device && same_rule(rule, kind, function, device->uuid))))
            return rule->value;
    }
    return 0;
}
