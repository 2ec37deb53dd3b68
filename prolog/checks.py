# SPDX-License-Identifier: Apache-2.0
"""What `fairwatt doctor` asks about a GPU node's hooks: the files, and that Slurm runs them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from fairwatt.core.call import call
from fairwatt.core.config import Config
from fairwatt.core.doctor import Check, Finding
from fairwatt.core.errors import CommandError
from fairwatt.core.slurm import SlurmClient

__all__ = ["HOOKS", "checks", "runs"]

HOOK_PYTHON = "/usr/bin/python3"
"""What the hooks run: slurmd gives them no PATH, and a virtual environment may be closed."""
_PROBE = "import sys; print(sys.version_info[0], f'{sys.version_info[1]:02}')"

HOOKS = {"Prolog": "prolog", "Epilog": "epilog", "TaskProlog": "task-prolog"}
"""Key of slurm.conf and the name of our hook for it."""


def _files(config: Config) -> list[Finding]:
    folder = _folder(config)
    if folder is None:
        return []
    remedy = "install it again before the next job: without it Slurm drains this node"
    return [
        Finding(f"{folder / name} is missing or not executable", remedy)
        for name in HOOKS.values()
        if not os.access(folder / name, os.R_OK | os.X_OK)
    ]


def _python(config: Config) -> list[Finding]:
    if _folder(config) is None:
        return []
    try:
        done = call([HOOK_PYTHON, "-I", "-S", "-c", _PROBE], timeout_s=10)
    except CommandError as error:
        problem = f"the hooks cannot run {HOOK_PYTHON}: {error}"
    else:
        if done.stdout.split() >= ["3", "09"]:
            return []
        problem = f"{HOOK_PYTHON} is older than 3.9"
    return [Finding(problem, "install Python; until then jobs run, but are not accounted")]


def _slurm_conf(config: Config) -> list[Finding]:
    folder = _folder(config)
    if folder is None:
        return []
    try:
        settings = SlurmClient(config["site.slurm_conf"] or None).config()
    except CommandError as error:
        return [Finding(f"Slurm's hooks not checked: {error}", "", "info")]
    return [
        Finding(
            f"slurm.conf's {key} does not name {folder / name}",
            "add `Include fairwatt.conf` to slurm.conf and run `scontrol reconfigure`",
        )
        for key, name in HOOKS.items()
        if not runs(settings, key, folder / name)
    ]


def runs(settings: Mapping[str, str], key: str, hook: Path) -> bool:
    """Say whether `key` of Slurm's settings names the hook, alone or as one of several."""
    own = re.compile(rf"{key}(\[\d+\])?")
    values = [value for name, value in settings.items() if own.fullmatch(name)]
    return str(hook) in [part.strip() for value in values for part in value.split(",")]


def _folder(config: Config) -> Path | None:
    named = config["agent.hook_dir"]
    return Path(named) if named and config["host.agent"] != "no" else None


checks: list[Check] = [
    Check("prolog.files", _files),
    Check("prolog.python", _python),
    Check("prolog.slurm_conf", _slurm_conf),
]
