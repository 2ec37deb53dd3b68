# SPDX-License-Identifier: Apache-2.0
"""The steps from one layout of a node to another. Each is idempotent: it makes something so.

The same steps lead forward and back; what differs is the layout that is wanted. The order keeps
slurmd stopped from before the boards change until Slurm's files say what is on them: so Slurm
never counts on GPUs that are not there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairwatt.core.call import call
from fairwatt.core.catalogue import Catalogue
from fairwatt.core.clock import now_ms
from fairwatt.core.conf_lines import names_node, read_conf
from fairwatt.core.config import Config
from fairwatt.core.errors import CommandError, ConfigError, DeviceError, SlurmError
from fairwatt.prolog.mig.cluster import DRAIN_REASON
from fairwatt.prolog.mig.conf_edit import with_gres, with_gres_in_options, with_gres_lines
from fairwatt.prolog.mig.conf_files import ConfFiles
from fairwatt.prolog.mig.cuts import changes, is_cut
from fairwatt.prolog.mig.generate import boards_live, generate
from fairwatt.prolog.mig.journal import Foreign, Journal
from fairwatt.prolog.mig.live import LiveNode
from fairwatt.prolog.mig.names import Spelling
from fairwatt.prolog.mig.nvml_mig import carry_out
from fairwatt.prolog.mig.read_live import read_live
from fairwatt.prolog.mig.slurm_node import NodeState, SlurmNode

__all__ = ["STEPS_DYNAMIC", "STEPS_STATIC", "Site", "Steps", "gpu_lines", "ids_of", "node_file"]

STEPS_DYNAMIC = (
    *("drain", "idle", "stop", "leave", "cut", "check", "files"),
    *("start", "registered", "resume"),
)
"""The steps of a node that registers itself: it leaves, and comes back with other GPUs."""

STEPS_STATIC = (
    *("drain", "idle", "stop", "cut", "check", "files"),
    *("resume", "reconfigure", "start", "registered"),
)
"""The steps of a node of slurm.conf.

A node that is resumed counts as not responding until slurmctld hears of it, and no job starts
there. If its slurmd runs already, that is at slurmctld's next ping, a second or two later; so it
is resumed first, and its slurmd's registration, if it is right, is what brings it back. After
`reconfigure` slurmctld up to 24.11 knows no state of the node, and does not resume it.
"""

POLL_S, SLOW_POLL_S = 0.05, 1.0
COMMAND_S = 180.0


@dataclass(frozen=True)
class Site:
    """What the steps work with on this node."""

    node: str
    config: Config
    catalogue: Catalogue
    words: dict[str, str]
    slurm_conf: Path
    gres_conf: Path
    dev: str = "/dev"

    def live(self) -> LiveNode:
        """Return the boards as they are now; DeviceError where they cannot be read."""
        return read_live(self.node, Path(self.config["agent.proc_root"]))


class Steps:
    """Does the steps of one change; errors are FairwattErrors, after which the step can be redone.

    Args:
        site: where and with what.
        slurm: the node at slurmctld.
        journal: the change; tells the way and the layout that is wanted.
        say: is given a line of progress now and then.
    """

    def __init__(
        self, site: Site, slurm: SlurmNode, journal: Journal, say: Callable[[str], None]
    ) -> None:
        self._site = site
        self._slurm = slurm
        self._journal = journal
        self._say = say
        kept = Path(site.config["mig.state_dir"]) / "files" / str(journal.begun.t_ms)
        self._files_kept = ConfFiles(kept)

    def run(self, step: str) -> None:
        """Do one step."""
        getattr(self, f"_{step}")()

    @property
    def names(self) -> tuple[str, ...]:
        """The steps of this change."""
        return STEPS_DYNAMIC if self._journal.begun.dynamic else STEPS_STATIC

    def is_cut_and_written(self) -> bool:
        """Whether boards and files are as wanted: what remains is to make Slurm see it."""
        target = self._journal.target
        written = self._journal.done_ms("files", self._journal.way) is not None
        return written and is_cut(self._site.live().gpus, target.cuts)

    # -- before the change ---------------------------------------------------------------------

    def _drain(self) -> None:
        node = self._slurm.show()
        if node is None or self._note_foreign(node):
            return
        self._slurm.drain(f"{DRAIN_REASON}201 re-slice to {self._journal.target.name}")

    def _note_foreign(self, node: NodeState) -> bool:
        """Whether somebody else holds the node drained; it is theirs to resume then."""
        reason = node.foreign_reason
        if reason is not None and reason != self._journal.foreign_reason:
            self._journal.append(Foreign(t_ms=now_ms(), reason=reason))
        return reason is not None

    def _idle(self) -> None:
        began = time.monotonic()
        told: list[str] = []
        while (node := self._slurm.show()) is not None:
            jobs = [] if node.is_busy and told else self._slurm.jobs()
            if not jobs and not node.is_busy:
                return
            if not node.is_drained:
                raise SlurmError("somebody resumed it", place=self._slurm.name)
            waited_s = time.monotonic() - began
            if waited_s > self._site.config["mig.idle_wait_s"]:
                raise SlurmError(
                    "jobs still run there",
                    place=self._slurm.name,
                    value=" ".join(jobs or told),
                    remedy="wait for them, or set mig.idle_wait_s",
                )
            if jobs and jobs != told:
                self._say(f"waits for the end of {' '.join(jobs[:6])}")
                told = jobs
            time.sleep(min(SLOW_POLL_S, max(POLL_S, waited_s / 20)))

    def _stop(self) -> None:
        self._command("mig.stop_command")
        jobs = self._slurm.jobs()
        if jobs:
            raise SlurmError(
                "jobs began before slurmd was stopped",
                place=self._slurm.name,
                value=" ".join(jobs),
                remedy="they go on; run it again later",
            )

    def _leave(self) -> None:
        node = self._slurm.show()
        if node is not None:
            self._note_foreign(node)
            self._slurm.delete()

    # -- the change ----------------------------------------------------------------------------

    def _cut(self) -> None:
        carry_out(changes(self._site.live().gpus, self._journal.target.cuts))

    def _check(self) -> None:
        live = self._site.live()
        left = changes(live.gpus, self._journal.target.cuts)
        if left or not is_cut(live.gpus, self._journal.target.cuts):
            raise DeviceError(
                "the boards are not as they were to be",
                place=self._site.node,
                value=", ".join(map(str, left)) or "a board is missing",
                remedy="see fairwatt mig show",
            )

    # -- what Slurm has of it ------------------------------------------------------------------

    def _files(self) -> None:
        begun, target = self._journal.begun, self._journal.target
        if begun.dynamic:
            self._write_options(drained=self._journal.foreign_reason is not None)
        elif self._site.config["mig.gres_command"]:
            self._command("mig.gres_command", begun.node, target.gres)
        else:
            path = node_file(self._site.slurm_conf, begun.node)
            self._put(path, lambda text: with_gres(text, begun.node, target.gres, str(path)))
        if begun.by_hand:
            self._write_gres_lines()

    def _put(self, path: Path, change: Callable[[str], str]) -> None:
        back = self._journal.way == "back"
        if not (back and self._files_kept.restore(path)):
            self._files_kept.edit(path, change)

    def _write_options(self, *, drained: bool) -> None:
        path = Path(self._site.config["mig.slurmd_options"])
        gres = self._journal.target.gres
        self._files_kept.edit(
            path, lambda text: with_gres_in_options(text, gres, str(path), drained=drained)
        )

    def _write_gres_lines(self) -> None:
        """Lines name device files, which have other numbers when instances are made anew."""
        begun, target, live = self._journal.begun, self._journal.target, self._site.live()
        path = self._site.gres_conf
        as_they_were = target.lines is not None and target.ids == ids_of(live)
        if as_they_were and self._journal.way == "back" and self._files_kept.restore(path):
            return
        lines = target.lines if as_they_were else gpu_lines(self._site, begun.types, live)
        self._files_kept.edit(
            path, lambda text: with_gres_lines(text, begun.node, lines or (), str(path))
        )

    def _reconfigure(self) -> None:
        """A slurmd that starts before slurmctld answers would try again a second later only."""
        self._command("mig.reconfigure_command")
        deadline = time.monotonic() + self._site.config["mig.start_wait_s"]
        while True:
            try:
                self._slurm.show()
            except CommandError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)
            else:
                return

    def _start(self) -> None:
        self._command("mig.start_command")

    def _registered(self) -> None:
        node = self._agreed()
        if not self._journal.begun.dynamic and node.is_drained and node.foreign_reason is None:
            self._slurm.resume()  # it could not be before: slurmctld knew no state of it
            self._agreed()

    def _agreed(self) -> NodeState:
        """Wait until slurmctld and slurmd agree on the GPUs that are wanted."""
        deadline = time.monotonic() + self._site.config["mig.start_wait_s"]
        node: NodeState | None = None
        while time.monotonic() < deadline:
            node = self._slurm.show()
            if node is not None and self._is_fresh(node):
                if self._agrees(node):
                    return node
                if "INVALID_REG" in node.flags:
                    break
            time.sleep(POLL_S)
        raise SlurmError(
            "slurmd and slurmctld do not agree on its GPUs",
            place=self._slurm.name,
            value="not registered" if node is None else _seen(node),
            remedy=f"wanted is {self._journal.target.gres}: see slurmd's log",
        )

    def _is_fresh(self, node: NodeState) -> bool:
        """Whether its slurmd started after we had stopped it (in whole seconds)."""
        stopped_ms = self._journal.done_ms("stop")
        return stopped_ms is None or (node.slurmd_start_ts or 0) >= stopped_ms // 1000

    def _agrees(self, node: NodeState) -> bool:
        return node.is_well and dict(node.gpus or {}) == dict(self._journal.target.counts)

    def _resume(self) -> None:
        reason = self._journal.foreign_reason
        if reason is not None:
            self._stay_drained(reason)
            return
        node = self._slurm.show()
        if node is None or not node.is_drained or self._note_foreign(node):
            return
        if "UNKNOWN" not in node.flags:
            self._slurm.resume()

    def _stay_drained(self, reason: str) -> None:
        """A dynamic node came back drained, but without the reason."""
        self._say(f"stays drained, as it was: {reason}")
        if self._journal.begun.dynamic and self._journal.began("leave"):
            self._slurm.drain(reason)
            self._write_options(drained=False)

    def _command(self, key: str, *more: str) -> None:
        argv = self._site.config[key]
        if argv:
            call([*argv, *more], timeout_s=COMMAND_S)


def node_file(slurm_conf: Path, node: str) -> Path:
    """Return the file, slurm.conf or one that it includes, with the node's NodeName line.

    Raises:
        ConfigError: no line is the node's.
    """
    for line in read_conf(slurm_conf):
        if line.values.get("nodename", "").lower() != "default" and names_node(line, node):
            return Path(line.place.rpartition(":")[0])
    raise ConfigError(
        "no NodeName line is for this node",
        place=str(slurm_conf),
        value=node,
        remedy="add one, or start the node as a dynamic one (slurmd -Z)",
    )


def gpu_lines(site: Site, types: tuple[str, ...], live: LiveNode) -> tuple[str, ...]:
    """Return the node's lines of gres.conf with device files, for the boards as they are."""
    boards = boards_live(live, site.catalogue)
    spelling = Spelling(site.catalogue, site.words, types)
    return generate(site.node, boards, spelling, "files", live=live, dev=site.dev).lines


def ids_of(live: LiveNode) -> tuple[tuple[int, int, int], ...]:
    """Return (device minor, GI, CI) of all instances that Slurm can use."""
    return tuple(
        (gpu.minor, each.gi, each.ci)
        for gpu in live.gpus
        for each in gpu.instances
        if each.ci is not None
    )


def _seen(node: NodeState) -> str:
    gpus = ", ".join(f"{count} x {type_}" for type_, count in (node.gpus or {}).items())
    return f"{'+'.join(sorted(node.flags))}, {gpus or 'no GPUs'}, {node.reason}"
