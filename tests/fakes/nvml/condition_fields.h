/* SPDX-License-Identifier: Apache-2.0 */
/* Field values that repeat a board's conditions. */
#ifndef FAKE_NVML_CONDITION_FIELDS_H
#define FAKE_NVML_CONDITION_FIELDS_H

#include "call.h"

/* NOT_SUPPORTED if the field is none of them, or the board's generation lacks it. */
nvmlReturn_t give_condition_field(const struct call *call, nvmlFieldValue_t *field);

#endif
