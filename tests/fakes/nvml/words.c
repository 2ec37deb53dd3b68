/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool number(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0;
}

bool count_of(const char *text, unsigned *value)
{
    int64_t wide;
    if (!number(text, &wide) || wide < 0 || wide > UINT32_MAX)
        return false;
    *value = (unsigned)wide;
    return true;
}

bool flag(const char *text, bool *value)
{
    *value = !strcmp(text, "1");
    return *value || !strcmp(text, "0");
}

bool word(const char *text, char *target)
{
    return (size_t)snprintf(target, NAME_SIZE, "%s", text) < NAME_SIZE;
}

struct device *find_gpu(const char *uuid)
{
    struct device *device = world_find(uuid);
    return device && !device->board ? device : NULL;
}
