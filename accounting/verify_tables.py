# SPDX-License-Identifier: Apache-2.0
"""What `fairwatt ledger verify` prints: balances, owners and faults as Tables."""

from __future__ import annotations

from fairwatt.accounting.verify import Verified
from fairwatt.accounting.verify_fault import MAX_KEPT
from fairwatt.core.records import Column, Table

__all__ = ["verify_tables"]

_BALANCES = (
    Column(key="device", title="Device", kind="text", definition="UUID, or part of a host."),
    Column(key="kind", title="Kind", kind="text", definition="gpu, cpu, dram or node."),
    Column(key="node", title="Node", kind="text", definition="Where it was last measured."),
    Column(key="windows", title="Windows", kind="integer", definition="Windows that were read."),
    Column(key="measured_mj", title="Measured mJ", kind="integer", definition="Σ measured."),
    Column(key="runs_mj", title="Runs mJ", kind="integer", definition="Σ shares of runs."),
    Column(key="unallocated_mj", title="Unallocated mJ", kind="integer", definition="Nobody's."),
    Column(key="system_mj", title="System mJ", kind="integer", definition="The node's own."),
    Column(key="left_mj", title="Left mJ", kind="integer", definition="Measured less all owners."),
    Column(
        key="unknown_s", title="Unknown", kind="duration_s", definition="Time of unknown energy."
    ),
    Column(key="holes", title="Told holes", kind="integer", definition="Times without a window "
           "that the agent told of: it began anew, or was away for over a month."),
)  # fmt: skip
_OWNERS = (
    Column(key="kind", title="Kind", kind="text", definition="gpu, cpu, dram or node."),
    Column(key="runs_mj", title="Runs mJ", kind="integer", definition="Runs that Slurm knows."),
    Column(key="unjoined_mj", title="Not joined mJ", kind="integer",
           definition="Runs on nodes of which Slurm has not told."),
    Column(key="unallocated_mj", title="Unallocated mJ", kind="integer", definition="Nobody's."),
    Column(key="system_mj", title="System mJ", kind="integer", definition="The nodes' own."),
    Column(key="total_mj", title="Facility mJ", kind="integer", definition="All owners together."),
)  # fmt: skip
_FAULTS = (
    Column(key="subject", title="What", kind="text", definition="Device, run, day or month."),
    Column(key="where", title="Where", kind="text", definition="Table, row and time."),
    Column(key="amount", title="Amount", kind="text", definition="What does not add up, in mJ."),
    Column(key="expected", title="Expected", kind="text", definition="As recomputed."),
    Column(key="found", title="Found", kind="text", definition="As it stands in the store."),
    Column(key="remedy", title="Remedy", kind="text", definition="What to do."),
)


def verify_tables(done: Verified) -> list[Table]:
    """Return each device's balance, the owners' sums, and what does not add up."""
    found, version = done.findings, done.data_version
    rate = round(found.rows / max(done.took_s, 0.001))
    said = (
        f"{found.rows:,} rows read in {done.took_s:.1f} s ({rate:,} rows/s): "
        f"{len(done.balances):,} devices, {done.runs:,} runs, {done.days:,} days"
    )
    faults = Table(
        name="faults",
        title=f"{found.count:,} faults",
        columns=_FAULTS,
        rows=[
            tuple("unknown" if value is None else str(value) for value in fault)
            for fault in found.faults
        ],
        data_version=version,
        notes=[f"{found.count - MAX_KEPT:,} more are not shown"] * (found.count > MAX_KEPT),
    )
    return [_balances(done), _owners(done, [*found.notes, said]), faults]


def _balances(done: Verified) -> Table:
    rows = [
        (
            one.device, one.kind, one.node, one.windows, one.measured_mj, one.runs_mj,
            one.unallocated_mj, one.system_mj,
            one.measured_mj - one.runs_mj - one.unallocated_mj - one.system_mj,
            one.unknown_ms // 1000, one.told_holes,
        )
        for one in done.balances
    ]  # fmt: skip
    return Table(
        name="balances", title="Balance of each device", columns=_BALANCES, rows=rows,
        data_version=done.data_version,
    )  # fmt: skip


def _owners(done: Verified, notes: list[str]) -> Table:
    rows = [
        (
            kind, sums.run_idle_mj + sums.run_active_mj, sums.unjoined_mj,
            sums.unallocated_idle_mj + sums.unallocated_active_mj, sums.system_mj, sums.total_mj,
        )
        for kind, sums in sorted(done.owners.items())
    ]  # fmt: skip
    return Table(
        name="owners", title="Owners, as the windows add up", columns=_OWNERS, rows=rows,
        data_version=done.data_version, notes=notes,
    )  # fmt: skip
