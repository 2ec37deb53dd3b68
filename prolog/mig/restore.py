# SPDX-License-Identifier: Apache-2.0
"""Cuts the boards again as Slurm's files say, after a reboot; before slurmd starts.

Instances do not survive a reboot, Slurm's files do. What the files say is what the last change
wrote, or the declared layout if that is what they fit. Slurm itself is not asked or told.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError
from fairwatt.prolog.mig.conf_edit import with_gres_lines
from fairwatt.prolog.mig.conf_files import ConfFiles
from fairwatt.prolog.mig.cuts import Change, changes, cuts_of
from fairwatt.prolog.mig.generate import boards_declared, generate
from fairwatt.prolog.mig.here import Here
from fairwatt.prolog.mig.journal import Begun, Journal, Mark, Record, Target, last_change
from fairwatt.prolog.mig.nvml_mig import carry_out
from fairwatt.prolog.mig.steps import gpu_lines
from fairwatt.prolog.mig.target import gpu_counts, gres_text, site_of

__all__ = ["restore"]


def restore(config: Config, here: Here) -> list[Change]:
    """Cut the boards as Slurm's files say; return what was done, [] when they were so.

    Only under the lock.

    Raises:
        ConfigError: no layout is known that fits the files; nothing was changed.
        DeviceError: the driver refused.
    """
    counts = gpu_counts(gres_text(config, here, dynamic=here.conf.gres_line is None))
    fitting = [each for each in _candidates(config, here) if each.counts == counts]
    if not fitting:
        raise ConfigError(
            "neither the last change nor the declared layout gives the GPUs of Gres=",
            place=here.conf.slurm_conf,
            value=", ".join(f"{count} x {type_}" for type_, count in counts.items()),
            remedy="run fairwatt mig apply",
        )
    todo = changes(here.live.gpus, fitting[0].cuts)
    carry_out(todo)
    if todo and here.style == "files":
        _write_lines(config, here)
    return todo


def _candidates(config: Config, here: Here) -> Iterator[Target]:
    folder = Path(config["mig.state_dir"])
    journal = Journal.peek(folder)
    yield from _written(journal.records if journal else last_change(folder))
    if here.declared is None:
        return
    boards, faults = boards_declared(here.declared, here.live, here.catalogue)
    if not faults:
        spelling = here.spelling(must_match=here.style == "nvml")
        made = generate(here.node, boards, spelling, others=here.conf.others)
        yield Target("declared", cuts_of(boards), made.gres, dict(made.counts))


def _written(records: list[Record]) -> Iterator[Target]:
    """The layouts of a change, the one first that its files were written for last."""
    begun = records[0] if records else None
    if not isinstance(begun, Begun):
        return
    marks = (each for each in records if isinstance(each, Mark) and each.phase == "done")
    ways = [mark.way for mark in marks if mark.step == "files"]
    forward = bool(ways) and ways[-1] == "forward"
    yield from (begun.new, begun.old) if forward else (begun.old, begun.new)


def _write_lines(config: Config, here: Here) -> None:
    """Lines name device files, whose numbers may be others now."""
    site = site_of(config, here)
    live = site.live()
    lines = gpu_lines(site, here.conf.types, live)
    path = site.gres_conf
    kept = ConfFiles(Path(config["mig.state_dir"]) / "files" / "restore")
    kept.edit(path, lambda text: with_gres_lines(text, here.node, lines, str(path)))
