/* SPDX-License-Identifier: Apache-2.0 */
/* One line of the control file, applied to the world. */
#ifndef FAKE_NVML_FACTS_H
#define FAKE_NVML_FACTS_H

#include <stdbool.h>

/* Apply a line (which is changed in place); false if it is unknown or malformed. */
bool fact_apply(char *line);

#endif
