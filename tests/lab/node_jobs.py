# SPDX-License-Identifier: Apache-2.0
"""Jobs of the node cases: submitted, watched, and what the agents' journals say of them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairwatt.accounting.agent.segments import read_entries
from fairwatt.core.events import Event, RunEnded, RunStarted
from fairwatt.core.segments import segment_numbers, segment_path
from tests.lab.cluster import OneHostCluster
from tests.lab.node_site import NodeJournal, NodeSite
from tests.lab.system import HOST_RELEASE
from tests.lab.waiting import await_value

__all__ = [
    "answering",
    "awaited",
    "ended",
    "events",
    "flag",
    "flags",
    "full_disk",
    "known",
    "output",
    "run_of",
    "running",
    "seen",
    "starts",
    "submit",
]


def flags(site: NodeSite) -> Path:
    """Where jobs write what they see and wait for what the test says; open to all users."""
    return site.paths.root / "flags"


def flag(site: NodeSite, name: str) -> Path:
    """Such a file; it need not be there."""
    return flags(site) / name


def submit(site: NodeSite, *args: str, script: str, user: str = "ada") -> int:
    """Submit a job whose output lies among the flags; return its id."""
    done = site.sbatch([*args, f"--output={flags(site)}/%j.out"], script, user)
    assert done.job_id is not None, done.stderr
    return done.job_id


def output(site: NodeSite, job_id: int) -> str:
    """What the job has written so far."""
    return (flags(site) / f"{job_id}.out").read_text()


def seen(site: NodeSite, job_id: int) -> list[set[str]]:
    """What each `seen=` line of the job's output names."""
    lines = output(site, job_id).splitlines()
    return [set(line[5:].split(",")) for line in lines if line.startswith("seen=")]


def running(site: NodeSite, job_id: int) -> None:
    """Wait until the job runs; its prolog may still."""
    site.wait_job(job_id, ("RUNNING",), timeout_s=30)


def ended(site: NodeSite, *jobs: int) -> None:
    """All jobs end well and no node is drained."""
    for job_id in jobs:
        assert site.wait_job(job_id, timeout_s=30) == ["COMPLETED"], output(site, job_id)
    for node in site.nodes:
        assert "drain" not in site.state(node)


def awaited(journal: NodeJournal, job_id: int, text: str) -> None:
    """Wait until the hooks have said `text` of the job."""
    await_value(
        lambda: [line for line in journal.lines if f"job {job_id}: " in line and text in line],
        what=f"{text!r} in the journal",
        timeout_s=10,
        detail=lambda: "\n".join(journal.lines),
    )


def events(site: OneHostCluster, node: str) -> list[Event]:
    """What the agent's journal tells, delivered or not."""
    folder = site.nodes[node].spool_dir / "journal"
    paths = [segment_path(folder, number) for number in segment_numbers(folder)]
    return [entry.event for path in paths for entry in read_entries(path) if entry.event]


def starts(site: NodeSite, node: str, job_id: int) -> list[RunStarted]:
    """What the agent knew of the job's devices, each time it learnt more."""
    found = [e for e in events(site, node) if isinstance(e, RunStarted)]
    return [e for e in found if e.job_id == job_id]


def run_of(site: OneHostCluster, node: str, job_id: int) -> tuple[RunStarted, RunEnded]:
    """The last word on the job's start, and its end, once they are in the journal."""

    def look() -> tuple[RunStarted, RunEnded] | None:
        mine = [e for e in events(site, node) if getattr(e, "job_id", None) == job_id]
        begun = [e for e in mine if isinstance(e, RunStarted)]
        over = [e for e in mine if isinstance(e, RunEnded)]
        return (begun[-1], over[-1]) if begun and over else None

    return await_value(look, what=f"job {job_id} in {node}'s journal", timeout_s=15)


def known(start: RunStarted) -> bool:
    """Whether slurmctld has told the job's part of its board."""
    return start.mapped_by == "slurmctld"


@contextmanager
def full_disk(site: NodeSite, folder: Path) -> Iterator[None]:
    """Lay a full file system over the folder, where the hooks of slurmd see it."""
    folder.mkdir(exist_ok=True)
    root = "" if site.release == HOST_RELEASE else str(site.paths.root / "system" / "root")
    there = f"{root}{folder}"
    done = site.inside("mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=8", "tmpfs", there)
    assert done.returncode == 0, done.stderr
    site.inside("dd", "if=/dev/zero", f"of={there}/fill", "bs=4k")
    try:
        yield
    finally:
        site.inside("umount", there)


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[None]:
    """An agent's socket that says the same to everybody."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(65_536)
                    peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)
    path.unlink(missing_ok=True)
