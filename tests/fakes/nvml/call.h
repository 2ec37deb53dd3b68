/* SPDX-License-Identifier: Apache-2.0 */
/* What every NVML function does first and last: lock, follow the control file, check, unlock. */
#ifndef FAKE_NVML_CALL_H
#define FAKE_NVML_CALL_H

#include "abi.h"
#include "world.h"

enum accepts { GPUS = 1, INSTANCES = 2, ANY_DEVICE = 3 };

struct call {
    const char *function;
    bool changes; /* holds the exclusive lock */
    struct device *device;
    int64_t now_ms, step_ms; /* the time of the call; the start of its 100 ms step */
};

/* Begin a call without a device. call_end must follow, whatever is returned. */
nvmlReturn_t call_begin(struct call *call, const char *function);
/* The same for a call that will change the world by control_append. */
nvmlReturn_t call_begin_change(struct call *call, const char *function);
/* Begin a call on a device. A kind that the function does not accept is NOT_SUPPORTED. */
nvmlReturn_t call_device(struct call *call, const char *function, nvmlDevice_t handle,
                         enum accepts accepts, const void *result);
/* Go on with a begun call on a device. */
nvmlReturn_t call_admit(struct call *call, nvmlReturn_t begun, nvmlDevice_t handle,
                        enum accepts accepts, const void *result);
/* Begin nvmlInit, which may come before any other call. */
nvmlReturn_t call_init(struct call *call, const char *function);
nvmlReturn_t call_shutdown(struct call *call, const char *function);
/* Check a device that the call itself has found. */
nvmlReturn_t call_check_device(struct call *call, const char *function, struct device *device);
nvmlReturn_t call_end(struct call *call, nvmlReturn_t result);
/* When a fact that the call writes may take effect: in the future of all that was reported. */
int64_t call_next_step_ms(const struct call *call);

/* Copy a text into the caller's buffer, INSUFFICIENT_SIZE if it does not fit. */
nvmlReturn_t give_text(const char *text, char *buffer, unsigned size);
/* End a call with a number. */
nvmlReturn_t give_number(struct call *call, nvmlReturn_t ret, unsigned *target, unsigned value);
/* A whole call on a GPU that gives one of its conditions. */
nvmlReturn_t give_condition(const char *function, nvmlDevice_t handle, enum condition what,
                            unsigned *target);

#endif
