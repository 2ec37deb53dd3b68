# SPDX-License-Identifier: Apache-2.0
"""Runs one fuzz target with atheris: python -m tests.fuzz.run TARGET [SECONDS].

New inputs are kept in build/fuzz/TARGET; a failing one is written there as crash-*.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fairwatt"]):
    from tests.fuzz.source import FromBytes
    from tests.fuzz.targets import TARGETS


def main(name: str, seconds: str = "60") -> None:
    """Fuzz until the time is over or something breaks."""
    folder = Path("build/fuzz") / name
    folder.mkdir(parents=True, exist_ok=True)

    def one(data: bytes) -> None:
        TARGETS[name](FromBytes(atheris.FuzzedDataProvider(data)))

    options = [f"-max_total_time={seconds}", f"-artifact_prefix={folder}/", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, str(folder)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
