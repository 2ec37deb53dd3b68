# SPDX-License-Identifier: Apache-2.0
"""Did the hardware report errors? XIDs of the kernel log, ECC, retired pages, remapped rows."""

from __future__ import annotations

from collections.abc import Iterator

from fairwatt.prolog.health.judge import Params, Problem
from fairwatt.prolog.health.reading import Reading, Xid
from fairwatt.prolog.health.spec import load_xids

__all__ = [
    "ecc_corrected",
    "ecc_uncorrected",
    "retired_pages",
    "retired_pending",
    "rows_failed",
    "rows_pending",
    "xid_fault",
    "xid_notice",
]


def xid_fault(reading: Reading, params: Params) -> Iterator[Problem]:
    """XIDs that stand for a fault of the board, until `hold_s` after the last."""
    return _xids(reading, params, "fault")


def xid_notice(reading: Reading, params: Params) -> Iterator[Problem]:
    """XIDs that an admin should know of, until `hold_s` after the last."""
    return _xids(reading, params, "notice")


def _xids(reading: Reading, params: Params, kind: str) -> Iterator[Problem]:
    """One problem per board: the newest XID of that kind."""
    known = load_xids()
    of_kind = {number for number, item in known.items() if item.kind == kind}
    wanted = (of_kind | set(params["also"])) - set(params["ignore"])
    since_ms = reading.t_ms - 1000 * params["hold_s"]
    newest: dict[str, Xid] = {}
    for xid in reading.xids or ():
        if xid.number in wanted and xid.t_ms > since_ms:
            newest[xid.device or xid.pci] = xid
    for xid in newest.values():
        meaning = known[xid.number].meaning if xid.number in known else "named by health.toml"
        text = f"XID {xid.number} at PCI {xid.pci}: {meaning}"
        yield Problem(xid.device, f"XID {xid.number}", text)


def ecc_uncorrected(reading: Reading, params: Params) -> Iterator[Problem]:
    """More uncorrected memory errors than `over`."""
    for gpu in reading.answering():
        if gpu.ecc is not None and gpu.ecc.uncorrected > params["over"]:
            count = gpu.ecc.uncorrected
            yield Problem(gpu.uuid, str(count), f"{count} uncorrected memory errors")


def ecc_corrected(reading: Reading, params: Params) -> Iterator[Problem]:
    """More corrected memory errors than `over`."""
    for gpu in reading.answering():
        if gpu.ecc is not None and gpu.ecc.corrected > params["over"]:
            count = gpu.ecc.corrected
            yield Problem(gpu.uuid, str(count), f"{count} corrected memory errors")


def retired_pending(reading: Reading, _params: Params) -> Iterator[Problem]:
    """Pages that wait to be retired."""
    for gpu in reading.answering():
        if gpu.retired is not None and gpu.retired.pending:
            yield Problem(gpu.uuid, "pending", "memory pages are retired at the next reset")


def retired_pages(reading: Reading, params: Params) -> Iterator[Problem]:
    """More retired pages than `over`."""
    for gpu in reading.answering():
        if gpu.retired is not None and gpu.retired.count > params["over"]:
            count = gpu.retired.count
            yield Problem(gpu.uuid, str(count), f"{count} memory pages are retired")


def rows_failed(reading: Reading, _params: Params) -> Iterator[Problem]:
    """Rows that could not be replaced."""
    for gpu in reading.answering():
        if gpu.rows is not None and gpu.rows.failed:
            yield Problem(gpu.uuid, "failed", "a memory row could not be replaced")


def rows_pending(reading: Reading, _params: Params) -> Iterator[Problem]:
    """Rows that wait to be replaced."""
    for gpu in reading.answering():
        if gpu.rows is not None and gpu.rows.pending:
            yield Problem(gpu.uuid, "pending", "memory rows are replaced at the next reset")
