# SPDX-License-Identifier: Apache-2.0
"""What a change of a node's layout begins with: the layout asked for, checked before anything."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from fairwatt.core.clock import now_ms
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError
from fairwatt.core.gres import parse_node_gres
from fairwatt.core.slurm import SlurmClient
from fairwatt.prolog.mig.conf_edit import gres_in_options
from fairwatt.prolog.mig.cuts import Cut, cuts_of, is_cut
from fairwatt.prolog.mig.finding import CODES, Finding
from fairwatt.prolog.mig.generate import boards_declared, boards_live, generate
from fairwatt.prolog.mig.here import Here
from fairwatt.prolog.mig.journal import Begun, Journal, Target
from fairwatt.prolog.mig.layout import GpuSet, MigFile, NodeLayout
from fairwatt.prolog.mig.lint import lint_boards
from fairwatt.prolog.mig.lint_types import lint_types
from fairwatt.prolog.mig.live import LiveInstance, LiveNode
from fairwatt.prolog.mig.slurm_node import NodeState, SlurmNode
from fairwatt.prolog.mig.steps import Site, ids_of

__all__ = [
    "asked_layout",
    "gpu_counts",
    "gres_text",
    "make_begun",
    "node_here",
    "same_target",
    "site_of",
]

_HARD = ("FWM104", "FWM105")
_CHANGES_GRES_LIVE = (23, 11)
"""From this release on `scontrol reconfigure` makes slurmctld take another count of GPUs."""


def node_here(config: Config, asked: str | None) -> str:
    """Return this host's node name.

    Raises:
        ConfigError: another node is asked for: only there its boards can be changed.
    """
    own: str = config["agent.node"] or socket.gethostname().partition(".")[0]
    if asked is not None and asked != own:
        raise ConfigError(
            f"this host is {own}",
            place="fairwatt mig apply",
            value=asked,
            remedy=f"run it on {asked}, or set agent.node here",
        )
    return own


def site_of(config: Config, here: Here) -> Site:
    """Return what the steps work with; device files lie where gres.conf has them now."""
    slurm_conf = Path(here.conf.slurm_conf)
    files = [name for line in here.conf.lines for name in line.files]
    dev = next((str(Path(name).parent) for name in files if "nvidia-caps" not in name), "/dev")
    return Site(
        node=here.node,
        config=config,
        catalogue=here.catalogue,
        words=dict(here.mig.types),
        slurm_conf=slurm_conf,
        gres_conf=Path(here.conf.gres_conf),
        dev=dev,
    )


class _Board(msgspec.Struct):
    number: int
    after: str


class _Proposal(msgspec.Struct):
    node: str
    boards: list[_Board]


class _Plan(msgspec.Struct):
    proposals: list[_Proposal]


def asked_layout(node: str, mig: MigFile, name: str | None, plan: Path | None) -> NodeLayout:
    """Return the layout of a node: of that name, of a plan's JSON, else as declared.

    Raises:
        ConfigError: there is none, or the plan cannot be read.
    """
    if plan is not None:
        return _of_plan(node, mig, plan)
    if name is not None:
        layout = mig.layouts.get(name)
        if layout is None:
            raise _unknown_layout(name, mig)
        return NodeLayout(node, ((layout.gpus, layout),), layout.place)
    declared = mig.of_node(node)
    if declared is None:
        raise ConfigError(
            "no layout is declared for this node",
            place=mig.place,
            value=node,
            remedy="declare one under [nodes], or name it: --layout NAME",
        )
    return declared


def _of_plan(node: str, mig: MigFile, path: Path) -> NodeLayout:
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=_Plan)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"no plan: {error}", place=str(path), remedy="make one: fairwatt mig plan --json"
        ) from error
    boards = [board for each in plan.proposals if each.node == node for board in each.boards]
    if not boards:
        raise ConfigError("the plan has no proposal for this node", place=str(path), value=node)
    parts = []
    for board in boards:
        if board.after not in mig.layouts:
            raise _unknown_layout(board.after, mig)
        parts.append((GpuSet(numbers=frozenset([board.number])), mig.layouts[board.after]))
    return NodeLayout(node, tuple(parts), str(path))


def _unknown_layout(name: str, mig: MigFile) -> ConfigError:
    known = ", ".join(sorted(mig.layouts))
    return ConfigError(
        "no such layout", place=mig.place, value=name, remedy=f"declared are: {known or 'none'}"
    )


def make_begun(
    config: Config, wanted: NodeLayout, here: Here, slurm: SlurmNode, *, dynamic: bool | None
) -> Begun | None:
    """Check a layout and return the change to it; None when the node is like that already.

    `dynamic` None: as slurmctld says.

    Raises:
        ConfigError: the layout cannot be had here, or the node's files do not allow it.
        CommandError: Slurm does not answer.
    """
    _refuse(lint_boards(wanted, here.conf, here.live, here.catalogue), _HARD)
    boards, _ = boards_declared(wanted, here.live, here.catalogue)
    by_hand = here.style == "files"
    spelling = here.spelling(must_match=not by_hand)
    made = generate(here.node, boards, spelling, others=here.conf.others)
    new = Target(_name(wanted), cuts_of(boards), made.gres, dict(made.counts))
    if not by_hand:
        _refuse(_lint_target(here, new))
    state = slurm.show()
    is_dynamic = _is_dynamic(config, here, state, dynamic)
    old = _old(config, here, by_hand=by_hand, dynamic=is_dynamic)
    if is_cut(here.live.gpus, new.cuts) and old.counts == new.counts:
        return None
    return Begun(
        t_ms=now_ms(),
        node=here.node,
        old=old,
        new=new,
        dynamic=is_dynamic,
        by_hand=by_hand,
        foreign_reason=state.foreign_reason if state else None,
        types=here.conf.types,
    )


def same_target(journal: Journal, wanted: NodeLayout, here: Here) -> None:
    """Pass if an open change leads to this layout.

    Raises:
        ConfigError: it leads to another one.
    """
    boards, faults = boards_declared(wanted, here.live, here.catalogue)
    if faults or cuts_of(boards) != journal.begun.new.cuts:
        raise ConfigError(
            f"a change to {journal.begun.new.name} is not finished",
            place=here.node,
            value=_name(wanted),
            remedy="run fairwatt mig apply (goes on) or fairwatt mig apply --rollback first",
        )


def _refuse(findings: Iterable[Finding], codes: Collection[str] = CODES) -> None:
    faults = [each for each in findings if each.severity == "error" and each.code in codes]
    if faults:
        raise ConfigError("\n".join(map(str, faults)))


def _name(wanted: NodeLayout) -> str:
    names = dict.fromkeys(layout.name for _, layout in wanted.parts)
    return "+".join(names)


def _lint_target(here: Here, new: Target) -> list[Finding]:
    """What slurmd would make of the new Gres= with the boards cut so (AutoDetect=nvml)."""
    live = _as_if(here.live, new.cuts)
    conf = replace(here.conf, gres=parse_node_gres(new.gres))
    boards = boards_live(live, here.catalogue)
    return list(lint_types(conf, live, boards, here.catalogue, here.mig.types))


def _as_if(live: LiveNode, cuts: Sequence[Cut]) -> LiveNode:
    by_gpu = {cut.gpu: cut for cut in cuts}
    gpus = tuple(
        replace(
            gpu,
            mig=by_gpu[gpu.uuid].mig,
            mig_pending=by_gpu[gpu.uuid].mig,
            instances=tuple(
                LiveInstance(number, profile, start, 0)
                for number, (profile, start) in enumerate(by_gpu[gpu.uuid].placed)
            ),
        )
        for gpu in live.gpus
    )
    return LiveNode(live.node, gpus, live.caps)


def _is_dynamic(config: Config, here: Here, state: NodeState | None, asked: bool | None) -> bool:
    known = state.is_dynamic if state else here.conf.gres_line is None
    if asked is not None and asked != known:
        kind = "registers itself (slurmd -Z)" if known else "stands in slurm.conf"
        raise ConfigError(
            f"the node {kind}",
            place=here.node,
            remedy=f"leave --{'dynamic' if asked else 'restart'} out",
        )
    if not known:
        _check_release(config)
    return known


def _check_release(config: Config) -> None:
    release = SlurmClient(config["site.slurm_conf"] or None, "cli").version()
    if release[:2] < _CHANGES_GRES_LIVE and config["mig.reconfigure_command"][:1] == ["scontrol"]:
        raise ConfigError(
            f"slurmctld {release[0]}.{release[1]:02d} takes another number of GPUs only when it "
            "starts",
            place="mig.reconfigure_command",
            value=" ".join(config["mig.reconfigure_command"]),
            remedy="name a command that restarts slurmctld, or make the node dynamic",
        )


def _old(config: Config, here: Here, *, by_hand: bool, dynamic: bool) -> Target:
    conf = here.conf
    gres = gres_text(config, here, dynamic=dynamic)
    return Target(
        name="as before",
        cuts=cuts_of(boards_live(here.live, here.catalogue)),
        gres=gres,
        counts=gpu_counts(gres),
        lines=tuple(line.line.text for line in conf.lines) if by_hand else None,
        ids=ids_of(here.live),
    )


def gpu_counts(gres: str) -> dict[str, int]:
    """Return the GPUs of a Gres= by type ("" for untyped ones)."""
    counts: dict[str, int] = {}
    for each in parse_node_gres(gres):
        if each.is_gpu:
            counts[each.type or ""] = counts.get(each.type or "", 0) + each.count
    return counts


def gres_text(config: Config, here: Here, *, dynamic: bool) -> str:
    """Return the node's Gres= as it stands in slurm.conf, or in its slurmd's options.

    Raises:
        ConfigError: the options cannot be read, or there is no Gres= in them.
    """
    if not dynamic and here.conf.gres_line is not None:
        return here.conf.gres_line.values.get("gres", "")
    path = Path(config["mig.slurmd_options"])
    try:
        return gres_in_options(path.read_text(encoding="utf-8", errors="replace"), str(path))
    except OSError as error:
        raise ConfigError(
            f"the dynamic node's slurmd has its Gres= in --conf, but its options cannot be read: "
            f"{error.strerror}",
            place=str(path),
            remedy="name the file in mig.slurmd_options",
        ) from error
