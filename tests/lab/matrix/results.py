# SPDX-License-Identifier: Apache-2.0
"""The record of results: per case one outcome, or one per release where releases differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.lab.paths import REPOSITORY

__all__ = ["RECORD", "load", "merged", "of_release", "save"]

RECORD = REPOSITORY / "tests" / "data" / "submit-matrix.json"

Recorded = dict[str, str | dict[str, str]]


def load(path: Path = RECORD) -> tuple[list[str], Recorded]:
    """The releases, oldest first, and the outcomes by the case's key."""
    if not path.exists():
        return [], {}
    body = json.loads(path.read_text(encoding="utf-8"))
    return body["releases"], body["outcomes"]


def of_release(release: str, path: Path = RECORD) -> dict[str, str]:
    """What was recorded for one release."""
    releases, recorded = load(path)
    return _expanded(releases, recorded).get(release, {})


def merged(release: str, outcomes: Mapping[str, str], path: Path = RECORD) -> None:
    """Replace what is recorded for one release."""
    releases, recorded = load(path)
    per_release = _expanded(releases, recorded)
    per_release[release] = dict(outcomes)
    save(per_release, path)


def save(per_release: Mapping[str, Mapping[str, str]], path: Path = RECORD) -> None:
    """Write the record; keys in the order of the newest release."""
    releases = sorted(per_release)
    keys = dict.fromkeys(key for name in reversed(releases) for key in per_release[name])
    body = {"releases": releases, "outcomes": {key: _joined(per_release, key) for key in keys}}
    text = json.dumps(body, indent=0, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _joined(per_release: Mapping[str, Mapping[str, str]], key: str) -> str | dict[str, str]:
    found = {name: each[key] for name, each in sorted(per_release.items()) if key in each}
    alike = len(set(found.values())) == 1 and len(found) == len(per_release)
    return next(iter(found.values())) if alike else found


def _expanded(releases: list[str], recorded: Recorded) -> dict[str, dict[str, str]]:
    return {
        name: {
            key: outcome if isinstance(outcome, str) else outcome[name]
            for key, outcome in recorded.items()
            if isinstance(outcome, str) or name in outcome
        }
        for name in releases
    }
