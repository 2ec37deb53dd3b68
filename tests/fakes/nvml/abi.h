/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NVML's binary interface that the fake speaks: codes, constants, structures. */
#ifndef FAKE_NVML_ABI_H
#define FAKE_NVML_ABI_H

#define EXPORT __attribute__((visibility("default")))

typedef int nvmlReturn_t;
enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
};

typedef struct device *nvmlDevice_t;
typedef struct gpm_sample *nvmlGpmSample_t;
typedef struct gpu_instance *nvmlGpuInstance_t;
typedef struct device *nvmlComputeInstance_t; /* here the same as the MIG device's handle */

enum { NVML_VALUE_TYPE_UNSIGNED_INT = 1, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3 };
enum {
    NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 83,
    NVML_FI_DEV_POWER_AVERAGE = 185,
    NVML_FI_DEV_POWER_INSTANT = 186,
    NVML_FI_DEV_POWER_CURRENT_LIMIT = 190,
    NVML_FI_DEV_ENERGY = 191,
};
enum { NVML_POWER_SCOPE_GPU = 0, NVML_POWER_SCOPE_MODULE = 1, NVML_POWER_SCOPE_COUNT = 4 };
enum {
    NVML_GPM_METRIC_GRAPHICS_UTIL = 1,
    NVML_GPM_METRIC_SM_UTIL = 2,
    NVML_GPM_METRIC_SM_OCCUPANCY = 3,
    NVML_GPM_METRIC_DRAM_BW_UTIL = 10,
};
#define NVML_MEMORY_V2 0x02000028u
#define NVML_TEMPERATURE_V1 0x0100000Cu
#define NVML_GPM_METRICS_GET_VERSION 1u
#define NVML_GPM_SUPPORT_VERSION 1u
enum {
    NVML_TEMPERATURE_THRESHOLD_COUNT = 8,
    NVML_MEMORY_LOCATION_DRAM = 2,
    NVML_MEMORY_LOCATION_SRAM = 7,
    NVML_MEMORY_LOCATION_COUNT = 8,
    NVML_PAGE_RETIREMENT_CAUSE_COUNT = 2,
    NVML_CLOCK_COUNT = 4,
    NVML_CLOCK_ID_COUNT = 4,
    NVML_NVLINK_MAX_LINKS = 36,
};
typedef struct { unsigned max, high, partial, low, none; } nvmlRowRemapperHistogramValues_t;
#define NVML_NO_INSTANCE 0xFFFFFFFFu
#define NVML_VALUE_NOT_AVAILABLE 0xFFFFFFFFFFFFFFFFull

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned is_c2c_enabled; } nvmlC2cModeInfo_v1_t;
typedef struct { unsigned version, sensor; int temperature; } nvmlTemperature_v1_t;

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

typedef union { double d; unsigned ui; unsigned long ul; unsigned long long ull; } nvmlValue_t;
typedef struct {
    unsigned field_id, scope_id;
    long long timestamp_us, latency_us;
    unsigned value_type;
    nvmlReturn_t nvml_return;
    nvmlValue_t value;
} nvmlFieldValue_t;

typedef struct {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned gpu_instance_slices, compute_instance_slices;
    unsigned long long memory_mib;
} nvmlDeviceAttributes_t;

#define NVML_GPU_INSTANCE_PROFILE_V2 0x02000098u
#define NVML_COMPUTE_INSTANCE_PROFILE_V2 0x02000088u
enum { NVML_GPU_INSTANCE_PROFILE_COUNT = 0x12, NVML_COMPUTE_INSTANCE_PROFILE_COUNT = 0x9 };
typedef struct { unsigned start, size; } nvmlPlacement_t;

typedef struct {
    unsigned id, is_p2p_supported, slices, instances;
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mib;
} nvmlGpuInstanceProfileInfo_t;
typedef struct {
    unsigned version, id, is_p2p_supported, slices, instances;
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mib;
    char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;
typedef struct {
    nvmlDevice_t device;
    unsigned id, profile_id;
    nvmlPlacement_t placement;
} nvmlGpuInstanceInfo_t;

typedef struct {
    unsigned id, slices, instances, multiprocessors;
    unsigned copy_engines, decoders, encoders, jpegs, ofas; /* shared with the GPU instance */
} nvmlComputeInstanceProfileInfo_t;
typedef struct {
    unsigned version, id, slices, instances, multiprocessors;
    unsigned copy_engines, decoders, encoders, jpegs, ofas;
    char name[96];
} nvmlComputeInstanceProfileInfo_v2_t;
typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpu_instance;
    unsigned id, profile_id;
    nvmlPlacement_t placement;
} nvmlComputeInstanceInfo_t;

typedef struct {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
} nvmlProcessInfo_t;

typedef struct {
    unsigned pid;
    unsigned long long timestamp_us;
    unsigned sm, memory, encoder, decoder;
} nvmlProcessUtilizationSample_t;

typedef struct { unsigned version, is_supported; } nvmlGpmSupport_t;
typedef struct {
    unsigned id;
    nvmlReturn_t nvml_return;
    double value;
    struct { const char *short_name, *long_name, *unit; } info;
} nvmlGpmMetric_t;
typedef struct {
    unsigned version, count;
    nvmlGpmSample_t sample1, sample2;
    nvmlGpmMetric_t metrics[];
} nvmlGpmMetricsGet_t;

#endif
