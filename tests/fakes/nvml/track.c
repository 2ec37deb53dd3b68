/* SPDX-License-Identifier: Apache-2.0 */
#include "track.h"

#include <stdlib.h>
#include <string.h>

/* How many steps begin at or before t_ms. */
static size_t steps_until(const struct track *track, int64_t t_ms)
{
    size_t low = 0, high = track->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (track->steps[middle].at_ms <= t_ms)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_room(struct track *track)
{
    if (track->count < track->capacity)
        return true;
    size_t capacity = track->capacity ? 2 * track->capacity : 16;
    struct step *steps = realloc(track->steps, capacity * sizeof *steps);
    if (!steps)
        return false;
    track->steps = steps;
    track->capacity = capacity;
    return true;
}

static void sum_areas_from(struct track *track, size_t first)
{
    for (size_t i = first; i < track->count; i++) {
        if (i == 0) {
            track->steps[i].area = 0;
            continue;
        }
        const struct step *last = &track->steps[i - 1];
        track->steps[i].area = last->area + last->value * (track->steps[i].at_ms - last->at_ms);
    }
}

bool track_set(struct track *track, int64_t at_ms, int64_t value)
{
    size_t place = steps_until(track, at_ms);
    if (place > 0 && track->steps[place - 1].at_ms == at_ms) {
        place--;
    } else {
        if (!make_room(track))
            return false;
        memmove(&track->steps[place + 1], &track->steps[place],
                (track->count - place) * sizeof *track->steps);
        track->count++;
    }
    track->steps[place].at_ms = at_ms;
    track->steps[place].value = value;
    sum_areas_from(track, place);
    return true;
}

int64_t track_value(const struct track *track, int64_t t_ms)
{
    size_t count = steps_until(track, t_ms);
    return count ? track->steps[count - 1].value : 0;
}

static int64_t area_until(const struct track *track, int64_t t_ms)
{
    size_t count = steps_until(track, t_ms);
    if (!count)
        return 0;
    const struct step *last = &track->steps[count - 1];
    return last->area + last->value * (t_ms - last->at_ms);
}

int64_t track_area(const struct track *track, int64_t from_ms, int64_t to_ms)
{
    return to_ms > from_ms ? area_until(track, to_ms) - area_until(track, from_ms) : 0;
}

int64_t track_last_at(const struct track *track, int64_t t_ms, int64_t fallback_ms)
{
    size_t count = steps_until(track, t_ms);
    return count ? track->steps[count - 1].at_ms : fallback_ms;
}

void track_clear(struct track *track)
{
    free(track->steps);
    memset(track, 0, sizeof *track);
}
