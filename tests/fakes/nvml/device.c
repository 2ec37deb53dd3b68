/* SPDX-License-Identifier: Apache-2.0 */
/* What a device is: names, numbers, place, memory, utilisation. */
#define _GNU_SOURCE
#include "call.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const unsigned long long MIB = 1ull << 20;

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *name, unsigned size)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, ANY_DEVICE, name);
    return call_end(&call, ret ? ret : give_text(call.device->name, name, size));
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *uuid, unsigned size)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, ANY_DEVICE, uuid);
    return call_end(&call, ret ? ret : give_text(call.device->uuid, uuid, size));
}

/* Of an instance: the index that nvmlDeviceGetMigDeviceHandleByIndex takes. */
EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned *index)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, ANY_DEVICE, index);
    return give_number(&call, ret, index, ret ? 0 : call.device->index);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned *minor)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, minor);
    return give_number(&call, ret, minor, ret ? 0 : call.device->minor);
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t handle, unsigned *architecture)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, architecture);
    return give_number(&call, ret, architecture, ret ? 0 : call.device->arch->nvml_id);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *pci)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, pci);
    if (ret == NVML_SUCCESS) {
        const struct device *gpu = call.device;
        memset(pci, 0, sizeof *pci);
        pci->domain = gpu->pci_domain;
        pci->bus = gpu->pci_bus;
        pci->device = gpu->pci_slot;
        pci->pci_device_id = 0x10DE; /* the vendor; the model's number is not faked */
        snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.0",
                 gpu->pci_domain & 0xFFFF, gpu->pci_bus & 0xFF, gpu->pci_slot & 0xFF);
        snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", gpu->pci_domain,
                 gpu->pci_bus & 0xFF, gpu->pci_slot & 0xFF);
    }
    return call_end(&call, ret);
}

/* Whether a device is, or counts as part of, the one that is asked for: instances of a board,
 * and compute instances that share their GPU instance's memory. */
static bool belongs(const struct device *part, const struct device *asked)
{
    bool shares = asked->gpu_instance && part->gpu_instance == asked->gpu_instance;
    return part->present && (part == asked || part->board == asked || shares);
}

/* By its processes, and what no process holds. */
static int64_t used_mib_of(const struct device *part)
{
    int64_t used_mib = condition(part, MEMORY_HELD, 0);
    for (size_t k = 0; k < part->process_count; k++)
        if (part->processes[k].memory_mib > 0)
            used_mib += part->processes[k].memory_mib;
    return used_mib;
}

static unsigned long long used_bytes(const struct device *asked)
{
    int64_t used_mib = 0;
    for (size_t i = 0; i < world.device_count; i++)
        if (belongs(&world.devices[i], asked))
            used_mib += used_mib_of(&world.devices[i]);
    return (unsigned long long)used_mib * MIB;
}

/* The sum over a MIG board is for the privileged only. */
static nvmlReturn_t measure_memory(const struct device *device, nvmlMemory_v2_t *memory)
{
    if (device->mig_current && geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;
    memory->total = (unsigned long long)device->memory_mib * MIB;
    memory->reserved = memory->total / 80;
    memory->used = used_bytes(device);
    memory->free = memory->total - memory->reserved - memory->used;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *memory)
{
    struct call call;
    nvmlMemory_v2_t now;
    nvmlReturn_t ret = call_device(&call, __func__, handle, ANY_DEVICE, memory);
    if (ret == NVML_SUCCESS)
        ret = measure_memory(call.device, &now);
    if (ret == NVML_SUCCESS) {
        memory->total = now.total;
        memory->free = now.free;
        memory->used = now.used + now.reserved; /* version 1 counts the reserve as used */
    }
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *memory)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, ANY_DEVICE, memory);
    if (ret == NVML_SUCCESS && memory->version != NVML_MEMORY_V2)
        ret = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (ret == NVML_SUCCESS)
        ret = measure_memory(call.device, memory);
    return call_end(&call, ret);
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *util)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, util);
    if (ret == NVML_SUCCESS && call.device->mig_current)
        ret = NVML_ERROR_NOT_SUPPORTED;
    if (ret == NVML_SUCCESS) {
        util->gpu = (unsigned)track_value(&call.device->util[UTIL_GPU], call.step_ms);
        util->memory = (unsigned)track_value(&call.device->util[UTIL_MEMORY], call.step_ms);
    }
    return call_end(&call, ret);
}

/* Enabled on modules whose counter covers GPU, CPU and memory together. */
EXPORT nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t handle, nvmlC2cModeInfo_v1_t *info)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, __func__, handle, GPUS, info);
    if (ret == NVML_SUCCESS && !call.device->arch->c2c_query)
        ret = NVML_ERROR_NOT_SUPPORTED;
    if (ret == NVML_SUCCESS)
        info->is_c2c_enabled = call.device->c2c;
    return call_end(&call, ret);
}
