/* SPDX-License-Identifier: Apache-2.0 */
/* Which driver runs in the kernel, which driver this library belongs to. */
#ifndef FAKE_NVML_VERSIONS_H
#define FAKE_NVML_VERSIONS_H

#include <stdbool.h>

bool versions_match(void);

#endif
