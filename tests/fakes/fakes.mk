# SPDX-License-Identifier: Apache-2.0
# The fake device library. Included by the main Makefile; also works alone: `make -f tests/fakes/fakes.mk`.
FAKE_NVML := build/fakes/libnvidia-ml.so.1
FAKE_NVML_SOURCES := $(sort $(wildcard tests/fakes/nvml/*.c))
FAKE_NVML_HEADERS := $(sort $(wildcard tests/fakes/nvml/*.h))
FAKE_CC ?= gcc
FAKE_CFLAGS := -std=c11 -Wall -Wextra -Werror -O2 -fPIC -shared -pthread -fvisibility=hidden

.PHONY: fakes
fakes: $(FAKE_NVML) ## build the fake NVML library (build/fakes)

# Renamed into place: a process that has the old library mapped keeps it, and two makes do not clash.
$(FAKE_NVML): $(FAKE_NVML_SOURCES) $(FAKE_NVML_HEADERS) tests/fakes/fakes.mk
	@mkdir -p $(@D)
	@$(FAKE_CC) $(FAKE_CFLAGS) -Wl,-soname,libnvidia-ml.so.1 -o $@.$$$$ $(FAKE_NVML_SOURCES) && mv $@.$$$$ $@
