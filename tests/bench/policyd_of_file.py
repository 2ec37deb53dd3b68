# SPDX-License-Identifier: Apache-2.0
"""policyd whose facts come from a file that a child prints, as Slurm's come from a child.

Usage: python -m tests.bench.policyd_of_file FACTS CONFIG
"""

from __future__ import annotations

import sys
from pathlib import Path

from fairwatt.core import config as config_module
from fairwatt.core import logs
from fairwatt.slurm_plugins import policyd_process
from fairwatt.slurm_plugins.facts import ChildReader


class FileReader(ChildReader):
    """Reads the facts in a child that prints the file."""

    def __init__(self, path: str) -> None:
        super().__init__(None)
        self._argv = ["cat", path]


def main(facts: str, config: str) -> None:
    """Serve until SIGTERM."""
    logs.setup(verbose=False)
    policyd_process.ChildReader = lambda *_: FileReader(facts)  # type: ignore[assignment,misc]
    policyd_process.serve(config_module.load(Path(config)))


if __name__ == "__main__":
    main(*sys.argv[1:])
