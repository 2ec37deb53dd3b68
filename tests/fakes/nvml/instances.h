/* SPDX-License-Identifier: Apache-2.0 */
/* What the functions on GPU instances and on compute instances begin and end with. */
#ifndef FAKE_NVML_INSTANCES_H
#define FAKE_NVML_INSTANCES_H

#include "call.h"

/* Go on with a begun call on a board in MIG mode; it is for the privileged. */
nvmlReturn_t admit_mig_board(struct call *call, nvmlReturn_t begun, nvmlDevice_t handle,
                             const void *result);
/* Go on with a begun call on a GPU instance; the call's device is its board. */
nvmlReturn_t admit_gpu_instance(struct call *call, nvmlReturn_t begun, nvmlGpuInstance_t handle,
                                const void *result);
bool is_privileged(void);
/* Append facts in printf's way. */
nvmlReturn_t tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
