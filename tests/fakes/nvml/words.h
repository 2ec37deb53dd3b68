/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a fact: each function is false (or NULL) if the word is malformed or unknown. */
#ifndef FAKE_NVML_WORDS_H
#define FAKE_NVML_WORDS_H

#include "world.h"

bool number(const char *text, int64_t *value);
bool count_of(const char *text, unsigned *value);
bool flag(const char *text, bool *value);
/* Copy a word into a field of NAME_SIZE. */
bool word(const char *text, char *target);
struct device *find_gpu(const char *uuid);

#endif
