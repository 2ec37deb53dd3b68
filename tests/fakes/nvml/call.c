/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "call.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "control.h"
#include "versions.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned clients;      /* nvmlInit minus nvmlShutdown */
static unsigned client_epoch; /* which load of the driver they have opened */
static bool file_found;

static int64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void take(bool exclusive)
{
    pthread_mutex_lock(&mutex);
    file_found = control_hold(exclusive);
}

static void give(void)
{
    control_release();
    pthread_mutex_unlock(&mutex);
}

/* The function hangs for as long as the control file says; other threads go on meanwhile. A signal
 * does not end it: a driver that hangs does not return for one either. */
static void hang(int64_t delay_ms)
{
    struct timespec delay = {delay_ms / 1000, delay_ms % 1000 * 1000000};
    while (nanosleep(&delay, &delay) != 0)
        continue;
}

/* Kill this process, not another one, at the COUNTth call: the fact counts down in the file. */
static void die_if_told(enum rule_kind when, const char *function)
{
    int64_t count = world_ruled(when, function, NULL);
    if (!count)
        return;
    char line[NAME_SIZE + 64];
    snprintf(line, sizeof line, "kill %s %s %lld\n", function,
             when == RULE_KILL_BEFORE ? "before" : "after", (long long)count - 1);
    if (control_append(line) && count == 1)
        raise(SIGKILL);
}

static nvmlReturn_t enter(struct call *call, const char *function, bool changes)
{
    take(changes);
    int64_t delay_ms = world_ruled(RULE_SLOW, function, NULL);
    if (delay_ms) {
        give();
        hang(delay_ms);
        take(changes);
    }
    if (changes)
        die_if_told(RULE_KILL_BEFORE, function);
    call->function = function;
    call->changes = changes;
    call->device = NULL;
    call->now_ms = world.clock_stopped ? world.stopped_ms : clock_ms();
    call->step_ms = call->now_ms - call->now_ms % STEP_MS;
    return world_ruled(RULE_HIDE, function, NULL) ? NVML_ERROR_FUNCTION_NOT_FOUND : NVML_SUCCESS;
}

static bool driver_answers(void)
{
    return file_found && !world.driver_unloaded;
}

nvmlReturn_t call_init(struct call *call, const char *function)
{
    pthread_mutex_lock(&mutex);
    if (!clients)
        control_forget(); /* one process may look at several nodes, one after the other */
    pthread_mutex_unlock(&mutex);
    nvmlReturn_t ret = enter(call, function, false);
    if (ret != NVML_SUCCESS)
        return ret;
    if (!driver_answers())
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (!versions_match())
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    if (client_epoch != world.driver_epoch)
        clients = 0;
    client_epoch = world.driver_epoch;
    clients++;
    return (nvmlReturn_t)world_ruled(RULE_FAIL, function, NULL);
}

static nvmlReturn_t begin(struct call *call, const char *function, bool changes)
{
    nvmlReturn_t ret = enter(call, function, changes);
    if (ret != NVML_SUCCESS)
        return ret;
    if (!clients)
        return NVML_ERROR_UNINITIALIZED;
    if (!driver_answers())
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (client_epoch != world.driver_epoch)
        return NVML_ERROR_UNINITIALIZED; /* loaded anew: its clients have to open it again */
    return (nvmlReturn_t)world_ruled(RULE_FAIL, function, NULL);
}

nvmlReturn_t call_begin(struct call *call, const char *function)
{
    return begin(call, function, false);
}

nvmlReturn_t call_begin_change(struct call *call, const char *function)
{
    return begin(call, function, true);
}

nvmlReturn_t call_shutdown(struct call *call, const char *function)
{
    nvmlReturn_t ret = enter(call, function, false);
    if (ret == NVML_SUCCESS && !clients)
        return NVML_ERROR_UNINITIALIZED;
    if (ret == NVML_SUCCESS)
        clients--;
    return ret;
}

nvmlReturn_t call_check_device(struct call *call, const char *function, struct device *device)
{
    if (!device || !world_has(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct device *gpu = device->board ? device->board : device;
    if (gpu->health != HEALTHY)
        return gpu->health == LOST ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_RESET_REQUIRED;
    call->device = device;
    return (nvmlReturn_t)world_ruled(RULE_FAIL, function, device);
}

nvmlReturn_t call_admit(struct call *call, nvmlReturn_t begun, nvmlDevice_t handle,
                        enum accepts accepts, const void *result)
{
    nvmlReturn_t ret = begun;
    if (ret == NVML_SUCCESS)
        ret = call_check_device(call, call->function, handle);
    if (ret != NVML_SUCCESS)
        return ret;
    if (!result)
        return NVML_ERROR_INVALID_ARGUMENT;
    return accepts & (call->device->board ? INSTANCES : GPUS) ? NVML_SUCCESS
                                                              : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t call_device(struct call *call, const char *function, nvmlDevice_t handle,
                         enum accepts accepts, const void *result)
{
    return call_admit(call, call_begin(call, function), handle, accepts, result);
}

nvmlReturn_t call_end(struct call *call, nvmlReturn_t result)
{
    if (call->changes && result == NVML_SUCCESS)
        die_if_told(RULE_KILL_AFTER, call->function);
    give();
    return result;
}

int64_t call_next_step_ms(const struct call *call)
{
    return call->step_ms + STEP_MS;
}

nvmlReturn_t give_text(const char *text, char *buffer, unsigned size)
{
    if (!buffer)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

nvmlReturn_t give_number(struct call *call, nvmlReturn_t ret, unsigned *target, unsigned value)
{
    if (ret == NVML_SUCCESS)
        *target = value;
    return call_end(call, ret);
}

nvmlReturn_t give_condition(const char *function, nvmlDevice_t handle, enum condition what,
                            unsigned *target)
{
    struct call call;
    nvmlReturn_t ret = call_device(&call, function, handle, GPUS, target);
    return give_number(&call, ret, target,
                       ret ? 0 : (unsigned)condition(call.device, what, call.step_ms));
}
