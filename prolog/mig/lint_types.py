# SPDX-License-Identifier: Apache-2.0
"""Gres= of slurm.conf against what slurmd will report, type by type; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fairwatt.core.catalogue import Catalogue
from fairwatt.core.errors import ConfigError
from fairwatt.prolog.mig.conf_edit import with_gres
from fairwatt.prolog.mig.finding import Finding
from fairwatt.prolog.mig.generate import Board, Generated, generate
from fairwatt.prolog.mig.live import LiveNode
from fairwatt.prolog.mig.names import Spelling, detected_names, normalised
from fairwatt.prolog.mig.node_conf import NodeConf

__all__ = ["lint_types"]

_SLICE = re.compile(r"\d+g\.\d+gb$")


def lint_types(
    conf: NodeConf,
    live: LiveNode,
    boards: Sequence[Board],
    catalogue: Catalogue,
    words: Mapping[str, str],
) -> Iterator[Finding]:
    """Compare Gres= with the detected devices, or with gres.conf where nothing is detected."""
    detects = conf.autodetect == "nvml"
    spelling = Spelling(catalogue, words, conf.types, must_match=detects)
    wanted = generate(conf.node, boards, spelling, others=conf.others)
    write = _line(conf, wanted.gres)
    if not conf.gpus:
        yield from _nothing(conf, wanted)
    elif detects:
        yield from _detected(conf, live, write)
    elif conf.lines:
        yield from _by_lines(conf, write)
        yield from _by_boards(conf, wanted, write)


def _nothing(conf: NodeConf, wanted: Generated) -> Iterator[Finding]:
    if not wanted.counts:
        return
    if conf.gres is None:
        text = f"no NodeName line for {conf.node}, and slurmctld does not know it"
        yield Finding("FWM115", "error", conf.slurm_conf, text, f"Gres={wanted.gres}")
    else:
        place = conf.gres_line.place if conf.gres_line else conf.node
        text = f"{conf.node} has {sum(wanted.counts.values())} GPUs or slices, and none in Gres="
        write = _line(conf, wanted.gres)
        yield Finding("FWM115", "error", place, text, write)


def _detected(conf: NodeConf, live: LiveNode, write: str) -> Iterator[Finding]:
    names = [name for gpu in live.gpus for name in detected_names(gpu)]
    configured = _configured(conf)
    asked = [type_ or None for type_, count in configured.items() for _ in range(count)]
    given = normalised(asked, names)
    place = _place(conf)
    got = Counter(type_ for type_ in given if type_ is not None)
    for type_, count in configured.items():
        fitting = [name for name in names if type_.lower() in name.lower()]
        if type_ and not fitting:
            yield _no_part(conf, type_, names, place, write)
        elif got[type_] < count:
            yield _more_configured(conf, type_ or "gpu", count, got[type_], place, write)
        if type_ and len(set(map(_kind, fitting))) > 1:
            yield _several(type_, fitting, _goes_wrong(type_, given, names), place, write)
    unused = [name for name, type_ in zip(names, given, strict=True) if type_ is None]
    if unused:
        text = f"detected, but not in Gres=: {_counted(unused)}; unused, or the node drains"
        yield Finding("FWM114", "error", place, text + _shared(conf), write)


def _no_part(conf: NodeConf, type_: str, names: Sequence[str], place: str, write: str) -> Finding:
    text = (
        f"type {type_} is no part of any detected name ({_counted(names) or 'none'}), so its GPUs "
        f"are ignored and {conf.node} drains{_shared(conf)}"
    )
    return Finding("FWM111", "error", place, text, write)


def _more_configured(
    conf: NodeConf, type_: str, count: int, got: int, place: str, write: str
) -> Finding:
    text = (
        f"{count} x {type_} configured, {got} there: {conf.node} goes INVALID and drains"
        f"{_shared(conf)}"
    )
    return Finding("FWM113", "error", place, text, write)


def _several(type_: str, fitting: Sequence[str], wrong: bool, place: str, write: str) -> Finding:
    listed = ", ".join(sorted(set(fitting)))
    text = f"type {type_} is a part of several detected names: {listed}"
    if wrong:
        return Finding("FWM112", "error", place, f"{text}; Slurm counts one as the other", write)
    return Finding("FWM112", "note", place, f"{text}; it fits while the counts are right")


def _goes_wrong(type_: str, given: Sequence[str | None], names: Sequence[str]) -> bool:
    pairs = zip(names, given, strict=True)
    return len({_kind(name) for name, got in pairs if got == type_}) > 1


def _kind(name: str) -> str:
    """The profile of a detected slice; whole boards are of one kind, whatever their name."""
    match = _SLICE.search(name)
    return match[0] if match else "whole"


def _by_lines(conf: NodeConf, write: str) -> Iterator[Finding]:
    """gres.conf's own counts: slurmd reports these, slurmctld wants those of Gres=."""
    listed: Counter[str] = Counter()
    for line in conf.lines:
        listed[line.type or ""] += line.count
    configured = _configured(conf)
    for type_ in sorted(configured.keys() | listed.keys()):
        asked, there = configured[type_], listed[type_]
        if asked != there:
            place = conf.lines[0].place if asked > there else _place(conf)
            text = f"{type_ or 'untyped'}: {asked} in Gres=, {there} in gres.conf{_shared(conf)}"
            yield Finding("FWM116", "error", place, text, write)


def _by_boards(conf: NodeConf, wanted: Generated, write: str) -> Iterator[Finding]:
    """Hand-written types may be any words: only sums by type that both know are compared."""
    configured = _configured(conf)
    if "" in configured:
        asked, there = sum(configured.values()), sum(wanted.counts.values())
        if asked > there:
            yield _more_configured(conf, "gpu", asked, there, _place(conf), write)
        return
    for type_ in sorted(configured.keys() | wanted.counts.keys()):
        asked, there = configured[type_], wanted.counts.get(type_, 0)
        if asked > there:
            yield _more_configured(conf, type_, asked, there, _place(conf), write)
        elif asked < there:
            text = f"{there} x {type_} there, {asked} configured: the others are never used"
            yield Finding("FWM114", "warn", _place(conf), text + _shared(conf), write)


def _configured(conf: NodeConf) -> Counter[str]:
    counts: Counter[str] = Counter()
    for each in conf.gpus:
        counts[each.type or ""] += each.count
    return counts


def _line(conf: NodeConf, gres: str) -> str:
    """What to write; a line for several nodes is parted: of the others nothing is known here."""
    whole = conf.line_with_gres(gres) or f"Gres={gres}"
    if not conf.other_nodes or conf.gres_line is None:
        return whole
    try:
        return with_gres(conf.gres_line.text, conf.node, gres)
    except ConfigError:  # NodeAddr= or Port= with a value for each: by hand
        return whole


def _place(conf: NodeConf) -> str:
    return conf.gres_line.place if conf.gres_line else f"Gres= of {conf.node}"


def _shared(conf: NodeConf) -> str:
    more = conf.other_nodes
    return f" (the line is for {more} more node{'s' if more > 1 else ''})" if more else ""


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(names).items()))
