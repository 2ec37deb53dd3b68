/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the control file that FAIRWATT_FAKE_NVML names. */
#ifndef FAKE_NVML_CONTROL_H
#define FAKE_NVML_CONTROL_H

#include <stdbool.h>

/* Take the file's lock and apply what was appended; false if there is no such file.
 *
 * Writers hold the exclusive lock while they choose a fact's time and append it. So a reader that
 * takes its own time under the lock never reports a value that a fact changes afterwards. */
bool control_hold(bool exclusive);
void control_release(void);
/* Append facts and apply them; the exclusive lock must be held. False: nothing was written. */
bool control_append(const char *lines);
/* Forget the file, so that the environment is asked again. */
void control_forget(void);

#endif
