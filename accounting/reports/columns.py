# SPDX-License-Identifier: Apache-2.0
"""The columns that several reports share, each with its definition."""

from __future__ import annotations

from fairwatt.core.records import Column, ColumnKind

__all__ = [
    "BILLING_HOURS",
    "CARBON",
    "DEVICE_HOURS",
    "ENERGY",
    "FGE_HOURS",
    "MEASURED",
    "RUNS_ENDED",
    "column",
]


def column(key: str, title: str, kind: ColumnKind, definition: str) -> Column:
    """Return a column; a shorthand that keeps tables of columns readable."""
    return Column(key=key, title=title, kind=kind, definition=definition)


FGE_HOURS = column(
    "fge_hours",
    "Full-GPU hours",
    "gpu_hours",
    "Full-GPU equivalent hours: whole GPUs count 1 per hour, a MIG slice its share of the "
    "board's compute slices (1g of 7 counts 1/7).",
)
DEVICE_HOURS = column(
    "device_hours",
    "Device hours",
    "gpu_hours",
    "Hours that devices were held, a MIG slice counted as one device like a whole GPU.",
)
BILLING_HOURS = column(
    "billing_hours",
    "Billing hours",
    "gpu_hours",
    "Slurm's billing units (TRESBillingWeights of the partition, for all that the run was given) "
    "times hours, without suspended time; unknown where Slurm tells none.",
)
RUNS_ENDED = column("runs_ended", "Runs ended", "integer", "Runs that ended in the period.")
ENERGY = column(
    "energy_mj",
    "GPU energy",
    "energy_mj",
    "Energy that the GPUs drew for these runs, idle and active parts together (in mJ in "
    "CSV and JSON); runs without a measurement are not in it.",
)
CARBON = column(
    "co2_mg",
    "GPU CO2e",
    "carbon_mg",
    "GPU energy times PUE times the location-based grid factor of each hour (in mg in CSV "
    "and JSON); what the rest of the nodes emitted is not in it.",
)
MEASURED = column(
    "measured",
    "Measured",
    "ratio",
    "Part of the GPU time whose energy was measured on the node.",
)
