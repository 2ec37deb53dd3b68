# SPDX-License-Identifier: Apache-2.0
"""Compares a node's declared layout, its boards, slurm.conf and gres.conf; pure.

What Slurm's files say is judged by what is on the boards now: a layout that is declared but not
yet applied is a finding of its own, and its Gres= is written by `apply`, never before.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairwatt.core.catalogue import Catalogue
from fairwatt.prolog.mig.finding import Finding
from fairwatt.prolog.mig.generate import (
    Board,
    boards_declared,
    boards_live,
    unlike,
)
from fairwatt.prolog.mig.layout import NodeLayout
from fairwatt.prolog.mig.lint_files import lint_files
from fairwatt.prolog.mig.lint_types import lint_types
from fairwatt.prolog.mig.live import LiveGpu, LiveNode
from fairwatt.prolog.mig.node_conf import NodeConf

__all__ = ["lint", "lint_boards"]


def lint(
    declared: NodeLayout | None,
    conf: NodeConf,
    live: LiveNode,
    catalogue: Catalogue,
    words: dict[str, str] | None = None,
) -> list[Finding]:
    """Return all that is wrong on a node, errors first; [] when everything fits.

    `words` are mig.toml's [types].
    """
    boards = boards_live(live, catalogue)
    found = [
        *lint_boards(declared, conf, live, catalogue),
        *lint_files(conf, live, boards),
        *lint_types(conf, live, boards, catalogue, words or {}),
    ]
    return sorted(found, key=lambda each: ("error", "warn", "note").index(each.severity))


def lint_boards(
    declared: NodeLayout | None, conf: NodeConf, live: LiveNode, catalogue: Catalogue
) -> Iterator[Finding]:
    """Compare the boards with the declared layout, and look for boards that Slurm cannot use."""
    boards, faults = boards_declared(declared, live, catalogue)
    for fault in faults:
        yield Finding("FWM105", "error", fault.place or conf.node, str(fault))
    yield from _absent(declared, live)
    for board in boards:
        yield from _state(board.gpu, conf)
        yield from _differs(board, declared, conf.node)


def _absent(declared: NodeLayout | None, live: LiveNode) -> Iterator[Finding]:
    minors = {gpu.minor for gpu in live.gpus}
    uuids = {gpu.uuid for gpu in live.gpus}
    for gpus, layout in declared.parts if declared else ():
        missing = [f"/dev/nvidia{n}" for n in sorted(gpus.numbers - minors)]
        missing += sorted(gpus.uuids - uuids)
        if missing and declared:
            there = ", ".join(f"/dev/nvidia{n}" for n in sorted(minors)) or "none"
            what = f"{', '.join(missing)} (layout {layout.name})"
            yield Finding(
                "FWM104",
                "error",
                declared.place or declared.node,
                f"{what} is not on {live.node}; there: {there}",
            )


def _state(gpu: LiveGpu, conf: NodeConf) -> Iterator[Finding]:
    place = f"/dev/nvidia{gpu.minor}"
    if gpu.mig_pending is not None and gpu.mig_pending != gpu.mig:
        mode = "on" if gpu.mig_pending else "off"
        text = f"MIG will be {mode} after the next reset of this GPU: Slurm's files then change"
        yield Finding("FWM106", "warn", place, text)
    if gpu.mig and not gpu.instances:
        yield _empty(place, conf)
    for each in gpu.instances:
        if each.ci is None:
            text = f"GPU instance {each.gi} ({each.profile}) is of no use without compute instance"
            yield Finding("FWM102", "error", place, text, f"nvidia-smi mig -gi {each.gi} -cci")


def _empty(place: str, conf: NodeConf) -> Finding:
    """Up to 24.05 slurmd ends here with a fatal error, newer ones log one."""
    if conf.autodetect == "nvml":
        text = (
            "MIG is on without any instance: slurmd up to 24.05 does not start (AutoDetect=nvml)"
        )
        return Finding("FWM101", "error", place, text, f"fairwatt mig apply {conf.node}")
    text = "MIG is on without any instance: no job can use this GPU"
    return Finding("FWM101", "warn", place, text, f"fairwatt mig apply {conf.node}")


def _differs(board: Board, declared: NodeLayout | None, node: str) -> Iterator[Finding]:
    what = unlike(board)
    if what is not None and declared is not None:
        text = f"/dev/nvidia{board.gpu.minor}: {what}"
        place = declared.place or node
        yield Finding("FWM103", "error", place, text, f"fairwatt mig apply {node}")
