# SPDX-License-Identifier: Apache-2.0
"""`fairwatt agent`: the daemon on every GPU node."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from importlib.util import find_spec

import click

from fairwatt.accounting.agent.host.places import host_places
from fairwatt.core import config

__all__ = ["agent"]

if find_spec("pynvml") is None:  # said here, where the command line can name the remedy
    raise ModuleNotFoundError("No module named 'pynvml'", name="pynvml")

# One arena of malloc for all threads: each further one keeps memory that no other uses.
_SMALL = {"MALLOC_ARENA_MAX": "1"}


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Log what is done in detail.")
def agent(verbose: bool) -> None:
    """Measure this node's GPUs and account their energy to jobs, until stopped."""
    program = [sys.executable, "-P", "-m", "fairwatt.accounting.agent.main"]
    options = ["-v"] if verbose else []
    # Looked up here, since the machinery for it takes 3 MB.
    known = config.load(config.find())
    options += [f"--host={name}={place}" for name, place in host_places(known)]
    argv = [*program, version("fairwatt"), *options]
    os.execve(program[0], argv, {**os.environ, **_SMALL})  # noqa: S606 -- ourselves
