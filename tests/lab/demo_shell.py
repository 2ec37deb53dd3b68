# SPDX-License-Identifier: Apache-2.0
"""The `shell` command of a running demo: opens a shell in its cluster, as root or a user of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from tests.lab.paths import Paths
from tests.lab.users import USERS, LabUser

__all__ = ["install_shell", "shell_text"]

_TEXT = """#!/bin/sh
# shell [USER [-c COMMAND]]: a shell in the demo's cluster; without USER as root.
name=${{1:-root}}
[ $# -eq 0 ] || shift
case $name in
{cases}
*) echo "shell: no user $name here; there are root {names}" >&2; exit 2 ;;
esac
"""
_CASE = '{name}) cd {home} && exec {become}env -i {variables} "TERM=$TERM" bash --norc "$@" ;;'


def install_shell(paths: Paths, env: Mapping[str, str], program: Path, config: Path) -> Path:
    """Write the command below the cluster's root and return its path."""
    path = paths.root / "shell"
    path.write_text(shell_text(paths, env, program, config))
    path.chmod(0o755)
    return path


def shell_text(paths: Paths, env: Mapping[str, str], program: Path, config: Path) -> str:
    """Return the script; `env` is the cluster's, `program` is `fairwatt`, for root alone.

    The users get no `fairwatt`: the project's folder may be closed to them.
    """
    tools = f"{paths.root / 'bin'}:{env['PATH']}"
    root = {
        **env,
        "PATH": f"{program.parent}:{tools}",
        "FAIRWATT_CONFIG": str(config),
    }
    cases = [_case("root", paths.home, "", root)]
    cases += [
        _case(u.name, paths.home / u.name, _become(u), {**env, "PATH": tools}) for u in USERS
    ]
    return _TEXT.format(cases="\n".join(cases), names=" ".join(user.name for user in USERS))


def _become(user: LabUser) -> str:
    return f"setpriv --reuid {user.uid} --regid {user.uid} --clear-groups "


def _case(name: str, home: Path, become: str, env: Mapping[str, str]) -> str:
    known = {**env, "USER": name, "LOGNAME": name, "HOME": str(home), "PS1": f"{name}@demo$ "}
    variables = " ".join(shlex.quote(f"{key}={value}") for key, value in known.items())
    return _CASE.format(name=name, home=shlex.quote(str(home)), become=become, variables=variables)
