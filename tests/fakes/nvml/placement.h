/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPU instances fit on a board together, and which ids they get. */
#ifndef FAKE_NVML_PLACEMENT_H
#define FAKE_NVML_PLACEMENT_H

#include "world.h"

/* Whether the profile may ever begin at this memory slice. */
bool placement_is_legal(const struct profile *profile, unsigned start);
/* Whether it can now: no slice taken twice, compute slices left, one media profile at most. */
bool placement_is_free(const struct device *board, const struct profile *profile, unsigned start);
/* The first legal start that is free. */
bool placement_first(const struct device *board, const struct profile *profile, unsigned *start);
/* How many more of the profile fit on the board as it is, and on an empty one. */
unsigned placement_room(const struct device *board, const struct profile *profile);
unsigned placement_most(const struct device *board, const struct profile *profile);
/* The id of a GPU instance: slices are halved and numbered as a tree, the whole board is 0. */
unsigned placement_id(const struct device *board, const struct profile *profile, unsigned start);
/* The start that an id stands for, if it is legal and free. */
bool placement_of_id(const struct device *board, const struct profile *profile, unsigned id,
                     unsigned *start);
const struct profile *profile_named(const struct device *board, const char *name);
const struct profile *profile_with_id(const struct device *board, unsigned id);
const struct profile *profile_of_kind(const struct device *board, unsigned kind);

#endif
