# SPDX-License-Identifier: Apache-2.0
"""The demo site under all rules, and the numbers of a job that nobody set."""

from __future__ import annotations

from tests.fakes.sites import demo, enforcing

DEMO = demo()


POLICY = enforcing(DEMO)


UNSET = {
    "num_tasks": 4294967294,
    "min_nodes": 4294967294,
    "max_nodes": 4294967294,
    "ntasks_per_node": 65534,
    "cpus_per_task": 65534,
    "time_limit": 4294967294,
}
