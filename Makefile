# SPDX-License-Identifier: Apache-2.0
# Two commands matter: `make demo` and `make test`. `make` alone lists the rest.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
PORT := 8080
FUZZ_S := 60
POINTS := 1000
PYTHON := $(VENV)/bin/python
PYTEST := $(PYTHON) -m pytest
ROOMS := core slurm_plugins prolog accounting dashboard

include tests/fakes/fakes.mk

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: setup
setup: ## install what demo and test need (Debian packages when root, Python packages, the fake NVML)
	@tests/setup.sh

.PHONY: demo
demo: setup ## start a real one-host cluster, submit the job mix, serve the dashboard (PORT=8080)
	@tests/demo.sh --port $(PORT)

.PHONY: demo-check
demo-check: setup ## as demo, but verify the figures, print them and end
	@$(PYTHON) -m tests.lab.demo --check

.PHONY: test
test: dist ## everything: lint, unit, docs, packaging, live cluster, browser, booted nodes
	@$(MAKE) --no-print-directory lint
	@tests/run.sh

.PHONY: unit
unit: ## the quick tests only
	$(PYTEST) -q -n 2 tests/unit tests/docs

.PHONY: test-ansible
test-ansible: dist ## the collection's roles on booted Debian nodes, each step's time printed
	FAIRWATT_STRICT_SKIPS=1 $(PYTEST) -q tests/ansible

.PHONY: test-matrix
test-matrix: setup ## every form of a request on three live releases of Slurm (RECORD=1 writes the page)
	@rm -rf build/submit-matrix
	FAIRWATT_STRICT_SKIPS=1 FAIRWATT_RECORD_MATRIX=$(RECORD) $(PYTEST) -q tests/lab/test_matrix.py
	@[ -z "$(RECORD)" ] || $(PYTHON) -m tests.lab.matrix.page
	@cat build/submit-matrix/*

.PHONY: lint
lint: ## style, types and import arrows
	$(VENV)/bin/ruff check --quiet .
	$(VENV)/bin/ruff format --quiet --check .
	@mkdir -p .typecheck/fairwatt
	@for room in $(ROOMS); do ln -sfn ../../$$room .typecheck/fairwatt/$$room; done
	$(VENV)/bin/mypy $(addprefix -p fairwatt.,$(ROOMS))
	PYTHONPATH=.typecheck $(VENV)/bin/lint-imports --no-cache

.PHONY: chaos
chaos: setup ## kill -9 at POINTS=1000 random points, full disks, locks: the store is the same (SEED=)
	@$(PYTHON) -m tests.chaos.run $(POINTS) $(SEED)

.PHONY: dist
dist: setup ## wheel, Ansible collection and wheelhouses for hosts without network, with checksums
	@tests/dist.sh

.PHONY: bench-hook
bench-hook: setup ## submits per second on a live controller of 1,000 nodes: trivial Lua and ours
	@$(PYTHON) -m tests.bench.bench_hook

.PHONY: fuzz
fuzz: setup ## coverage-guided fuzzing of grammar, decisions, time limits and hook (FUZZ_S=60 seconds each)
	$(VENV)/bin/pip install -q -e '.[fuzz]'
	@set -o pipefail; for target in grammar decisions time_limits hook; do \
		$(PYTHON) -m tests.fuzz.run $$target $(FUZZ_S) 2>&1 | grep -v '^INFO: Instrumenting' || exit 1; done

.PHONY: bench-policyd
bench-policyd: setup ## policyd with 10,000 nodes and 200 partitions: time of a decision, memory
	@$(PYTHON) -m tests.bench.bench_policyd

.PHONY: bench-node
bench-node: setup ## what the hooks add to a job beside a bash peer, what the agent takes (RELEASE=22.05)
	@$(PYTHON) -m tests.bench.bench_node $(if $(RELEASE),--release $(RELEASE))

.PHONY: bench-import
bench-import: setup ## a million runs from an export of sacct into the store, beside slurm2sql
	@$(PYTHON) -m tests.bench.bench_import

.PHONY: bench-accuracy
bench-accuracy: setup ## energy of runs beside a simulator's truth, TDP x hours and power every 30 s
	@$(PYTHON) -m tests.bench.bench_accuracy

.PHONY: probe-gpu
probe-gpu: ## measure a real GPU's counter, calls and our cost (OUT=file); says why and ends where there is none
	@$(PYTHON) tests/gpu/probe.py $(if $(OUT),--out $(OUT)) || [ $$? -eq 77 ]

.PHONY: bench-store
bench-store: setup ## backup, check, restore and export of a store of a million runs
	@$(PYTHON) -m tests.bench.bench_store

.PHONY: bench-replay
bench-replay: setup ## what 1,000 nodes measure into the collector, settled and rolled up (FULL=1: a day)
	@$(PYTHON) -m tests.bench.bench_replay $(if $(FULL),--full)

.PHONY: clean
clean: ## remove what set-up and tests made in this folder
	rm -rf $(VENV) .typecheck build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
