# SPDX-License-Identifier: Apache-2.0
"""The agent's metrics, in a file for node_exporter's textfile collector."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.keeper import Keeper
from fairwatt.core.delivery import Delivery
from fairwatt.core.files import write_atomically
from fairwatt.core.metrics import Sample, render

__all__ = ["MetricsFile", "agent_samples"]

_log = logging.getLogger(__name__)


class MetricsFile:
    """Written whenever `write` is called; a fault is logged once until it goes.

    Args:
        path: the file, read by all.
        journal: the agent's.
        keeper: the agent's.
        delivery: the agent's.
    """

    def __init__(self, path: Path, journal: Journal, keeper: Keeper, delivery: Delivery) -> None:
        self._path = path
        self._of = journal, keeper, delivery
        self._fault = ""

    def write(self) -> None:
        """Replace the file; nothing waits for the disk."""
        text = render(agent_samples(*self._of))
        try:
            write_atomically(self._path, text.encode(), 0o644, durable=False)
        except OSError as error:
            fault = f"{error.filename or self._path}: {error.strerror}"
            if fault != self._fault:
                _log.error("the metrics cannot be written: %s", fault)
            self._fault = fault
        else:
            self._fault = ""


def agent_samples(journal: Journal, keeper: Keeper, delivery: Delivery) -> Iterator[Sample]:
    """Yield all samples of an agent now; what is not known is left out."""
    status = keeper.status()
    yield Sample("agent_devices", status["devices"])
    yield Sample("agent_jobs", len(status["jobs"]))
    yield Sample("agent_spool_bytes", journal.size)
    if journal.delivered_seq >= 0:
        yield Sample(
            "agent_undelivered_events", journal.state.next_seq - 1 - journal.delivered_seq
        )
    yield Sample("agent_thinned_windows", journal.merged_windows)
    yield Sample("agent_on_disk", int(not journal.failing))
    yield Sample("agent_delivery_healthy", int(delivery.healthy))
    if delivery.last_ts:
        yield Sample("agent_last_delivery_timestamp_seconds", delivery.last_ts)
    yield Sample("agent_faulty_devices", len(status["faults"]))
    for by in ("learnt", "catalogue", "unknown"):
        boards = [one for one in status["idle_power"].values() if one["by"] == by]
        yield Sample("agent_idle_power_devices", len(boards), (by,))
