/* SPDX-License-Identifier: Apache-2.0 */
/* A step function of time with its exact integral: power in mW, utilisation in percent. */
#ifndef FAKE_NVML_TRACK_H
#define FAKE_NVML_TRACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct step { int64_t at_ms, value, area; }; /* area: value x ms of everything before at_ms */
struct track { struct step *steps; size_t count, capacity; };

/* Let the value hold from at_ms on; of two facts for one time the later written wins. */
bool track_set(struct track *track, int64_t at_ms, int64_t value);
/* The value in force at t_ms; 0 before the first step. */
int64_t track_value(const struct track *track, int64_t t_ms);
/* The integral over [from_ms, to_ms) in value x ms. */
int64_t track_area(const struct track *track, int64_t from_ms, int64_t to_ms);
/* When the last step at or before t_ms began, or fallback if there is none. */
int64_t track_last_at(const struct track *track, int64_t t_ms, int64_t fallback_ms);
void track_clear(struct track *track);

#endif
