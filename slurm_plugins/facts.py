# SPDX-License-Identifier: Apache-2.0
"""Reads the cluster's facts from Slurm; as a program, prints them as JSON.

policyd runs it as a child process: reading a thousand nodes' JSON would hold the interpreter
lock for longer than a submission may wait, and pyslurm holds it while it waits for an answer.
Usage: python -m fairwatt.slurm_plugins.facts [CONF [BACKEND]]
"""

from __future__ import annotations

import sys
from collections import Counter

import msgspec

from fairwatt.core.call import call
from fairwatt.core.errors import CommandError, FairwattError, GrammarError, SlurmError
from fairwatt.core.slurm import NodeFacts, PartitionFacts, SlurmClient
from fairwatt.slurm_plugins.hostlist import size
from fairwatt.slurm_plugins.site import Facts, Node, Partition, Stock, lowered

__all__ = ["ChildReader", "decode", "encode", "from_slurm"]

CHILD_TIMEOUT_S = 60.0
CHUNK_NODES = 250
_CLOSED = "]}"

# policyd's threads go before others, and so would their child; reading JSON can wait.
_PROGRAM = """\
import os, sys
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
from fairwatt.slurm_plugins.facts import main
sys.exit(main(sys.argv))
"""


def from_slurm(slurm_conf: str | None, backend: str = "auto") -> Facts:
    """Ask slurmctld for nodes, partitions and reservations; `backend` as site.slurm_backend.

    Raises:
        CommandError: it does not answer.
        SlurmError: its answer has no known shape.
    """
    client = SlurmClient(slurm_conf, backend)
    found = client.snapshot()
    flags = _qos_flags(client)
    known = Counter(name for node in found.nodes for name in node.partitions)
    return Facts(
        nodes=tuple(_node(node) for node in found.nodes),
        partitions=tuple(_partition(part, known[part.name]) for part in found.partitions),
        reservations=dict(found.reservations),
        beyond_time=_qos_with(flags, "PartitionTimeLimit"),
        beyond_nodes=_qos_with(flags, "PartitionMaxNodes"),
    )


def _qos_flags(client: SlurmClient) -> dict[str, tuple[str, ...]] | None:
    """The flags of each QOS; None: slurmdbd does not tell, though there may be some."""
    try:
        return client.qos_flags()
    except (CommandError, SlurmError):
        return None


def _qos_with(flags: dict[str, tuple[str, ...]] | None, flag: str) -> tuple[str, ...] | None:
    if flags is None:
        return None
    return tuple(sorted(name.lower() for name, held in flags.items() if flag in held))


class ChildReader:
    """Asks slurmctld in a child process, which keeps this one's interpreter free.

    What did not change since the last time is not read again: it is the same object.
    """

    def __init__(self, slurm_conf: str | None, backend: str = "auto") -> None:
        self._argv = [sys.executable, "-c", _PROGRAM, slurm_conf or "", backend]
        self._text = ""
        self._facts = Facts((), ())

    def __call__(self) -> Facts:
        """Return the facts of now.

        Raises:
            CommandError: the child failed; its message is the child's.
            msgspec.MsgspecError: it printed something else.
        """
        text = call(self._argv, timeout_s=CHILD_TIMEOUT_S).stdout
        if text != self._text:
            self._facts = decode(text)
            self._text = text
        return self._facts


def encode(facts: Facts) -> str:
    """Write facts as JSON: a first line without the nodes, then lines of some nodes each."""
    head = msgspec.json.encode(msgspec.structs.replace(facts, nodes=())).decode()
    nodes = [msgspec.json.encode(node).decode() for node in facts.nodes]
    chunks = [nodes[at : at + CHUNK_NODES] for at in range(0, len(nodes), CHUNK_NODES)]
    lines = ",\n".join(",".join(chunk) for chunk in chunks)
    return f'{head[:-1]},"nodes":[\n{lines}\n{_CLOSED}\n'


def decode(text: str) -> Facts:
    """Read what `encode` wrote, a line at a time: another thread can answer jobs in between.

    Raises:
        msgspec.MsgspecError: it has another shape.
    """
    head, *lines = text.splitlines() or [""]
    if not lines or lines.pop() != _CLOSED:
        raise msgspec.DecodeError("facts without their end")
    nodes: list[Node] = []
    for line in lines:
        nodes += msgspec.json.decode(f"[{line.removesuffix(',')}]", type=list[Node])
    return msgspec.structs.replace(
        msgspec.json.decode(head + _CLOSED, type=Facts), nodes=tuple(nodes)
    )


def _node(node: NodeFacts) -> Node:
    gpus = tuple(Stock(gres.type, gres.count) for gres in node.gres if gres.is_gpu and gres.count)
    return Node(
        name=node.name,
        partitions=node.partitions,
        gpus=gpus,
        cpus=node.cpus,
        mem_mib=node.mem_mib,
        features=node.features,
    )


def _partition(part: PartitionFacts, known: int) -> Partition:
    return Partition(
        name=part.name,
        default=part.default,
        open=part.open_to_all,
        whole=_is_whole(part.nodes, known),
        max_time_min=_minutes(part.max_time_s),
        default_time_min=_minutes(part.default_time_s),
        max_nodes=part.max_nodes,
        accounts=_lowered(part.allow_accounts),
        denied_accounts=lowered(part.deny_accounts),
        qos=_lowered(part.allow_qos),
        denied_qos=lowered(part.deny_qos),
    )


def _is_whole(nodes: str, known: int) -> bool:
    """Whether so many nodes are all of a list; one that cannot be read proves nothing."""
    try:
        return known >= size(nodes)
    except GrammarError:
        return True


def _lowered(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if names is None else lowered(names)


def _minutes(seconds: int | None) -> int | None:
    return None if seconds is None else seconds // 60


def main(argv: list[str]) -> int:
    """Print the facts of the cluster of `argv[1]` (a slurm.conf); 1 with a message on failure."""
    slurm_conf, backend = [*argv[1:], "", ""][:2]
    try:
        facts = from_slurm(slurm_conf or None, backend or "auto")
    except FairwattError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(encode(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
