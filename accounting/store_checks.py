# SPDX-License-Identifier: Apache-2.0
"""What `fairwatt doctor` asks of the nightly upkeep: is the store whole, and is there a copy."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from fairwatt.accounting.store import open_reader
from fairwatt.accounting.upkeep import keeping_of, last_result
from fairwatt.accounting.verify_nightly import last_verified
from fairwatt.core.config import Config
from fairwatt.core.doctor import Check, Finding

__all__ = ["store_checks"]

LATE_S = 2 * 86_400
"""A night may be missed, as when the host is down; not two."""


def _upkeep(config: Config) -> list[Finding]:
    keeping = keeping_of(config)
    with closing(open_reader(config["collector.database"])) as db:
        results = {step: last_result(db, step) for step in ("check", "thin", "backup")}
        verified = last_verified(db)
    findings = [*_damage(results["check"]), *_wrong_sums(verified)]
    for step, words in (("check", "check"), ("thin", "thinning")):
        if error := (results[step] or {}).get("error"):
            findings.append(Finding(f"the nightly {words} failed: {error}", ""))
    if keeping.backup_dir is not None:
        return findings + _backup(results["backup"])
    if config["host.collector"] == "yes":
        words = "no backup of the store is made"
        findings.append(Finding(words, "set store.backup_dir, best on another disk", "info"))
    return findings


def _damage(checked: dict[str, Any] | None) -> list[Finding]:
    faults = (checked or {}).get("faults") or []
    if not faults:
        return []
    return [
        Finding(
            f"the store is damaged: {faults[0]} ({len(faults)} faults)",
            "see `fairwatt store check`, then `fairwatt store restore`",
        )
    ]


def _wrong_sums(verified: dict[str, Any] | None) -> list[Finding]:
    if verified is None or not verified["faults"]:
        return []
    days = f"--from {verified['first']} --to {verified['last']}"
    return [
        Finding(
            f"the ledger does not add up in {verified['faults']} places",
            f"see `fairwatt ledger verify {days}`: it names each place and what to do",
        )
    ]


def _backup(made: dict[str, Any] | None) -> list[Finding]:
    if made is None:
        return []  # the first night is still to come
    remedy = "run `fairwatt store backup` and see its message"
    if error := made.get("error"):
        return [Finding(f"the last backup failed: {error}", remedy)]
    age_s = time.time() - made["ts"]
    if age_s > LATE_S:
        return [Finding(f"the last backup is {round(age_s / 86_400)} days old", remedy)]
    return []


store_checks: list[Check] = [Check("accounting.store", _upkeep)]
