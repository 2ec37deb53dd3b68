/* SPDX-License-Identifier: Apache-2.0 */
/* The facts about MIG: mode, profiles, GPU instances and compute instances. */
#ifndef FAKE_NVML_MIG_FACTS_H
#define FAKE_NVML_MIG_FACTS_H

#include <stdbool.h>

/* Each takes the words after the fact's name; false: no effect. */
bool fact_mig(char **f);
bool fact_profile(char **f);
bool fact_instance(char **f);
bool fact_remove_instance(char **f);
bool fact_gpu_instance(char **f);
bool fact_remove_gpu_instance(char **f);
bool fact_compute_instance(char **f);
bool fact_remove_compute_instance(char **f);
bool fact_clear_instances(char **f);

#endif
