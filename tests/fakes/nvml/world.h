/* SPDX-License-Identifier: Apache-2.0 */
/* Everything the control file has said so far: the driver, the GPUs, their MIG instances, the rules. */
#ifndef FAKE_NVML_WORLD_H
#define FAKE_NVML_WORLD_H

#include "condition.h"
#include "track.h"

enum { MAX_PROFILES = 12, MAX_STARTS = 8, MAX_GPU_INSTANCES = 1024 };
enum { MAX_DEVICES = 1024, MAX_PROCESSES = 64, MAX_RULES = 256, MAX_MIG = 7, NAME_SIZE = 96 };
enum { STEP_MS = 100, AVERAGE_MS = 1000, USUAL_TEMPERATURE_C = 35 };
enum util { UTIL_GPU, UTIL_MEMORY, UTIL_SM, UTIL_OCCUPANCY, UTIL_DRAM, UTIL_COUNT };
enum health { HEALTHY, LOST, NEEDS_RESET };
enum rule_kind { RULE_HIDE, RULE_FAIL, RULE_SLOW, RULE_KILL_BEFORE, RULE_KILL_AFTER };

struct process { unsigned pid; int64_t memory_mib; unsigned sm_util; }; /* memory_mib < 0: unknown */

/* One way to cut a board: a GPU instance of so many memory slices from one of the starts. */
struct profile {
    char name[32];
    unsigned id, kind, size, slices, multiprocessors, copy_engines, decoders;
    int64_t memory_mib;
    bool media; /* a board holds one of these at most */
    unsigned starts[MAX_STARTS], start_count;
};

/* A GPU instance. The address is the NVML handle. */
struct gpu_instance {
    struct device *board;
    bool present;
    bool implied; /* came with an `instance` fact, goes with its last compute instance */
    unsigned id, start;
    const struct profile *profile; /* NULL: a name that the board does not have; takes no place */
};

/* A GPU (board == NULL) or a MIG instance (board: its GPU). The address is the NVML handle. */
struct device {
    struct device *board;
    bool present; /* a destroyed instance keeps its past power but answers no call */
    char uuid[NAME_SIZE], name[NAME_SIZE];
    unsigned index; /* NVML index; of an instance: MIG device index on its board */
    int64_t memory_mib;
    struct track power, util[UTIL_COUNT];
    struct process processes[MAX_PROCESSES];
    size_t process_count;
    struct conditions conditions;
    /* GPU only */
    int64_t start_ms, counter_start_mj, idle_mw, max_mw;
    struct track resets; /* a step for each counter reset; values are not used */
    unsigned minor, pci_domain, pci_bus, pci_slot, temperature_c;
    unsigned mig_current, mig_pending;
    struct profile profiles[MAX_PROFILES];
    size_t profile_count;
    unsigned instances_made; /* ever: makes each UUID new */
    const struct architecture *arch;
    bool c2c;
    enum health health;
    /* instance only: slices are the compute instance's */
    struct gpu_instance *gpu_instance;
    unsigned gi, ci, slices, first_slice, multiprocessors, copy_engines, decoders;
};

/* What a GPU generation can do, as NVML documents it. */
struct architecture {
    const char *name;
    unsigned nvml_id;
    bool energy_counter, average_power, mig, gpm, c2c_query, mig_without_reset;
};

struct rule { enum rule_kind kind; char function[NAME_SIZE], uuid[NAME_SIZE]; int64_t value; };

struct world {
    struct device devices[MAX_DEVICES];
    size_t device_count;
    struct gpu_instance gpu_instances[MAX_GPU_INSTANCES];
    size_t gpu_instance_count;
    struct rule rules[MAX_RULES];
    size_t rule_count;
    char driver_version[NAME_SIZE], nvml_version[NAME_SIZE]; /* "": as usual */
    bool driver_unloaded;
    struct track driver_loads; /* a step for each load after the first */
    unsigned driver_epoch;
    bool clock_stopped;
    int64_t stopped_ms;
};

extern struct world world;

void world_clear(void);
struct device *world_add_device(void);
struct device *world_find(const char *uuid);
struct device *world_gpu(unsigned index);
struct device *world_instance(const struct device *board, unsigned index);
unsigned world_gpu_count(void);
/* Several compute instances may share a GPU instance; one is found, NULL if it has none. */
struct device *world_compute_instance(const struct gpu_instance *instance, unsigned ci);
unsigned world_compute_count(const struct gpu_instance *instance);
struct gpu_instance *world_add_gpu_instance(struct device *board, unsigned id);
struct gpu_instance *world_gpu_instance(const struct device *board, unsigned id);
bool world_has_gpu_instance(const struct gpu_instance *instance);
bool world_has(const struct device *device);
/* Set a rule for a function on a device ("*": on all), or take it back with value 0. */
bool world_rule(enum rule_kind kind, const char *function, const char *uuid, int64_t value);
/* The rule's value, 0 if there is none; device may be NULL. */
int64_t world_ruled(enum rule_kind kind, const char *function, const struct device *device);
const struct architecture *architecture_named(const char *name);

#endif
