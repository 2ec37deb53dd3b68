# SPDX-License-Identifier: Apache-2.0
"""pyslurm as a backend of the Slurm client, where it imports and its cluster answers.

pyslurm is optional, GPL-2.0-only and not part of fairwatt. What one has to know of it (25.11):

- Importing it ends the whole process where libslurm finds no slurm.conf, and it works with one
  cluster per process. So `why_unusable` looks for the file, then lets a child process try.
- It works with no server that is older than itself, and holds the interpreter lock while it waits
  for an answer: a daemon lets a child ask (slurm_plugins/facts.py).
- Its import changes how this process loads every later library (RTLD_DEEPBIND): undone here.
- An empty list of who is denied reads ["ALL"].
- A node's GRES are a dict without the sockets (`(S:0-1)`), and a GRES that is not consumed
  (`bandwidth:lustre:no_consume:4G`) is a ValueError.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fairwatt.core.call import call
from fairwatt.core.errors import CommandError
from fairwatt.core.gres import parse_node_gres
from fairwatt.core.slurm_facts import NodeFacts, PartitionFacts

__all__ = ["PyslurmBackend", "find_slurm_conf", "why_unusable"]

PROBE_TIMEOUT_S = 20.0
SLURM_CONFS = (
    Path("/etc/slurm/slurm.conf"),
    Path("/etc/slurm-llnl/slurm.conf"),
    Path("/run/slurm/conf/slurm.conf"),  # of a configless slurmd
)
_IMPORT = "import pyslurm"
_PROBE = f"{_IMPORT}; pyslurm.Partitions.load()"
_UNLIMITED = "UNLIMITED"
_ALL = ["ALL"]

_lock = threading.Lock()
_probed: dict[str, str | None] = {}
_loaded: dict[str, Any] = {}
_Answer = TypeVar("_Answer")


def find_slurm_conf(slurm_conf: str | None) -> str | None:
    """Return the file that libslurm would use: as named, SLURM_CONF, or a usual place's."""
    named = slurm_conf or os.environ.get("SLURM_CONF")
    candidates = [Path(named)] if named else SLURM_CONFS
    return next((str(path) for path in candidates if os.access(path, os.R_OK)), None)


def why_unusable(slurm_conf: str | None) -> str | None:
    """Return why pyslurm cannot be asked for this cluster, in one clause; None where it can.

    A child process finds it out, once per process and slurm.conf; a cluster that did not answer
    is tried again the next time.
    """
    if importlib.util.find_spec("pyslurm") is None:
        return "pyslurm is not installed"
    conf = find_slurm_conf(slurm_conf)
    if conf is None:
        return "no slurm.conf can be read here: name it in site.slurm_conf"
    with _lock:
        if conf not in _probed:
            reason, is_final = _probe(conf)
            if not is_final:
                return reason
            _probed[conf] = reason
        if _probed[conf] is None and _loaded and conf not in _loaded:
            return f"pyslurm already works with {next(iter(_loaded))} in this process"
        return _probed[conf]


def _probe(conf: str) -> tuple[str | None, bool]:
    """Try pyslurm in a child; the reason against it, and whether it will stay so."""
    failed = _run_child(_PROBE, conf)
    if failed is None:
        return None, True
    broken = _run_child(_IMPORT, conf)
    if broken is None:
        return f"pyslurm gets no answer from slurmctld ({failed})", False
    return f"pyslurm cannot be imported ({broken})", True


def _run_child(code: str, conf: str) -> str | None:
    """Run Python code; the last line that it complained with, None where it ran."""
    # -P: a pyslurm.py in the working folder is nobody's pyslurm.
    argv = [sys.executable, "-P", "-c", code]
    try:
        call(argv, timeout_s=PROBE_TIMEOUT_S, env={"SLURM_CONF": conf})
    except CommandError as error:
        return (error.stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1]
    return None


class PyslurmBackend:
    """Asks one cluster through pyslurm; only where `why_unusable` gave no reason against it.

    Every method raises CommandError for no answer.
    """

    def __init__(self, slurm_conf: str | None = None) -> None:
        self._conf = find_slurm_conf(slurm_conf) or ""

    def nodes(self) -> list[NodeFacts]:
        """Return all nodes."""
        return [_node(node) for node in self._load("Nodes")]

    def partitions(self) -> list[PartitionFacts]:
        """Return all partitions that this user may see, hidden ones too."""
        return [_partition(part) for part in self._load("Partitions")]

    def reservations(self) -> dict[str, str]:
        """Return the partition of each reservation by its name; "" where it has none."""
        return {item.name: item.partition or "" for item in self._load("Reservations")}

    def _load(self, kind: str) -> list[Any]:
        with _lock:
            pyslurm = _loaded.get(self._conf) or _import(self._conf)
            return _asked(kind, pyslurm.RPCError, getattr(pyslurm, kind).load)


def _asked(kind: str, rpc_error: type[Exception], load: Callable[[], Any]) -> list[Any]:
    try:
        return list(load().values())
    except rpc_error as error:
        raise CommandError(["pyslurm", f"{kind}.load"], 1, str(error)) from error


def _import(conf: str) -> Any:  # noqa: ANN401 - pyslurm has no types
    with _slurm_conf_set(conf), _dlopen_flags_kept():
        module = importlib.import_module("pyslurm")
    _loaded[conf] = module
    return module


@contextmanager
def _slurm_conf_set(conf: str) -> Iterator[None]:
    """The variable for the import, which is when libslurm reads it."""
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = conf
    try:
        yield
    finally:
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before


@contextmanager
def _dlopen_flags_kept() -> Iterator[None]:
    before = sys.getdlopenflags()
    try:
        yield
    finally:
        sys.setdlopenflags(before)


def _node(node: Any) -> NodeFacts:  # noqa: ANN401 - pyslurm has no types
    state, *flags = node.state.split("+")
    gres = ",".join(f"{name}:{count}" for name, count in node.configured_gres.items())
    return NodeFacts(
        name=node.name,
        state=state,
        flags=tuple(sorted(flags)),
        gres=parse_node_gres(gres),
        cpus=node.total_cpus or None,
        mem_mib=node.real_memory or None,
        partitions=tuple(node.partitions),
        features=tuple(node.available_features),
        active_features=tuple(node.active_features),
        sockets=node.sockets or None,
    )


def _partition(part: Any) -> PartitionFacts:  # noqa: ANN401 - pyslurm has no types
    accounts, qos = _allowed(part.allowed_accounts), _allowed(part.allowed_qos)
    groups = _allowed(part.allowed_groups)
    denied = _denied(part.denied_accounts), _denied(part.denied_qos)
    restricted = any(names is not None for names in (accounts, qos, groups)) or any(denied)
    return PartitionFacts(
        name=part.name,
        nodes=part.nodes or "",
        state=part.state,
        default=part.is_default,
        max_time_s=_seconds(part.max_time),
        open_to_all=not restricted and not part.is_root_only,
        default_time_s=_seconds(part.default_time),
        max_nodes=_limit(part.max_nodes),
        max_cpus_per_node=_limit(part.max_cpus_per_node),
        allow_accounts=accounts,
        deny_accounts=denied[0],
        allow_qos=qos,
        deny_qos=denied[1],
        allow_groups=groups,
    )


def _allowed(names: Iterable[str]) -> tuple[str, ...] | None:
    return None if list(names) == _ALL else tuple(names)


def _denied(names: Iterable[str]) -> tuple[str, ...]:
    return () if list(names) == _ALL else tuple(names)


def _limit(value: int | str | None) -> int | None:
    return None if value is None or value == _UNLIMITED else int(value)


def _seconds(minutes: int | str | None) -> int | None:
    limit = _limit(minutes)
    return None if limit is None else limit * 60
