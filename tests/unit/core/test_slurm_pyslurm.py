# SPDX-License-Identifier: Apache-2.0
"""The choice between pyslurm and the command line, and pyslurm's words as facts.

A small package stands in for pyslurm, so that every way in which it can fail is tried; the real
one is in tests/lab/test_slurm_client.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairwatt.core import slurm_pyslurm
from fairwatt.core.errors import CommandError, SlurmError
from fairwatt.core.gres import Gres
from fairwatt.core.slurm import NodeFacts, PartitionFacts, SlurmClient
from fairwatt.core.slurm_pyslurm import PyslurmBackend, find_slurm_conf, why_unusable

WORKING = """
import os, sys
sys.setdlopenflags(sys.getdlopenflags() | os.RTLD_DEEPBIND)
class RPCError(Exception): pass
class Kind:
    @classmethod
    def load(cls): return dict(cls.items)
class Partitions(Kind): items = {}
class Nodes(Kind): items = {}
class Reservations(Kind): items = {}
CONF = os.environ["SLURM_CONF"]
"""
SILENT = WORKING + "def fail(): raise RPCError('Unable to contact slurm controller')\n"
SILENT += "Partitions.load = fail\n"
FATAL = (
    "import os, sys\nsys.stderr.write('fatal: no configuration source\\n')\nsys.stderr.flush()\n"
)
FATAL += "os._exit(1)\n"

Install = Callable[[str], None]


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test knows what another found out, nor whether this host has a Slurm."""
    monkeypatch.setattr(slurm_pyslurm, "_probed", {})
    monkeypatch.setattr(slurm_pyslurm, "_loaded", {})
    monkeypatch.setattr(slurm_pyslurm, "SLURM_CONFS", ())
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.delitem(sys.modules, "pyslurm", raising=False)
    yield
    sys.modules.pop("pyslurm", None)


@pytest.fixture
def conf(tmp_path: Path) -> str:
    path = tmp_path / "slurm.conf"
    path.write_text("ClusterName=x\n")
    return str(path)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that puts a package of this code where Python finds pyslurm."""

    def put(code: str) -> None:
        (tmp_path / "site" / "pyslurm").mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / "pyslurm" / "__init__.py").write_text(code)

    put("")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return put


def test_without_pyslurm_the_command_line_is_used(
    conf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_pyslurm.importlib.util, "find_spec", lambda name: None)
    chosen = SlurmClient(conf).chosen
    assert (chosen.name, chosen.reason) == ("cli", "pyslurm is not installed")


def test_without_a_slurm_conf_nothing_is_imported(install: Install) -> None:
    install(FATAL)
    assert why_unusable(None) == "no slurm.conf can be read here: name it in site.slurm_conf"
    assert why_unusable("/none/slurm.conf") == why_unusable(None)


def test_an_import_that_ends_the_process_ends_a_child_only(conf: str, install: Install) -> None:
    install(FATAL)
    reason = "pyslurm cannot be imported (fatal: no configuration source)"
    assert why_unusable(conf) == reason
    install(WORKING)
    assert why_unusable(conf) == reason, "found out once per process"


def test_a_controller_that_does_not_answer_is_tried_again(conf: str, install: Install) -> None:
    install(SILENT)
    assert "no answer from slurmctld" in str(why_unusable(conf))
    assert "Unable to contact slurm controller" in SlurmClient(conf).chosen.reason
    install(WORKING)
    assert why_unusable(conf) is None


def test_where_it_works_it_is_chosen_and_leaves_no_trace(conf: str, install: Install) -> None:
    install(WORKING)
    flags = sys.getdlopenflags()
    client = SlurmClient(conf)
    assert (client.chosen.name, client.nodes(), client.reservations()) == ("pyslurm", [], {})
    assert conf == sys.modules["pyslurm"].CONF
    assert "SLURM_CONF" not in os.environ
    assert sys.getdlopenflags() == flags


def test_the_variable_of_the_process_comes_back(
    conf: str, install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(WORKING)
    other = tmp_path / "other.conf"
    other.touch()
    monkeypatch.setenv("SLURM_CONF", str(other))
    assert PyslurmBackend(conf).nodes() == []
    assert os.environ["SLURM_CONF"] == str(other)


def test_it_serves_one_cluster_per_process(conf: str, install: Install, tmp_path: Path) -> None:
    install(WORKING)
    assert SlurmClient(conf).nodes() == []
    other = tmp_path / "other.conf"
    other.touch()
    assert why_unusable(str(other)) == f"pyslurm already works with {conf} in this process"
    assert why_unusable(conf) is None


def test_the_setting_decides(conf: str, install: Install) -> None:
    install(WORKING)
    assert SlurmClient(conf, "cli").chosen.name == "cli"
    assert SlurmClient(conf, "pyslurm").chosen.name == "pyslurm"


def test_pyslurm_that_was_asked_for_and_cannot_be_used_is_an_error(
    conf: str, install: Install
) -> None:
    install(FATAL)
    with pytest.raises(SlurmError, match=r"site.slurm_backend: .*cannot be imported .*'pyslurm'"):
        SlurmClient(conf, "pyslurm").nodes()


def test_no_answer_later_on_is_the_error_that_the_command_line_gives(
    conf: str, install: Install
) -> None:
    install(SILENT)
    with pytest.raises(CommandError, match=r"pyslurm Partitions.load: .*Unable to contact"):
        PyslurmBackend(conf).partitions()


def test_the_usual_places_of_slurm_conf(
    conf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_pyslurm, "SLURM_CONFS", (tmp_path / "none", Path(conf)))
    assert find_slurm_conf(None) == find_slurm_conf("") == conf
    monkeypatch.setenv("SLURM_CONF", "/other")
    assert find_slurm_conf(None) is None
    assert find_slurm_conf(conf) == conf


NODE = SimpleNamespace(
    name="mig01",
    state="MIXED+PLANNED+DRAIN",
    configured_gres={"gpu:a100_1g.5gb": 7, "gpu": 1},
    total_cpus=32,
    real_memory=256_000,
    partitions=["mig", "all"],
    available_features=["hbm", "ib"],
    active_features=["ib"],
    sockets=2,
)


def test_a_node_in_the_words_of_pyslurm() -> None:
    assert slurm_pyslurm._node(NODE) == NodeFacts(
        name="mig01",
        state="MIXED",
        flags=("DRAIN", "PLANNED"),
        gres=(Gres("gpu", "a100_1g.5gb", 7), Gres("gpu", None, 1)),
        cpus=32,
        mem_mib=256_000,
        partitions=("mig", "all"),
        features=("hbm", "ib"),
        active_features=("ib",),
        sockets=2,
    )


def test_numbers_that_pyslurm_does_not_know_are_not_amounts() -> None:
    unset = {"total_cpus": 0, "real_memory": None, "sockets": 0, "configured_gres": {}}
    node = slurm_pyslurm._node(SimpleNamespace(**{**vars(NODE), **unset}))
    assert (node.cpus, node.mem_mib, node.sockets, node.gres) == (None, None, None, ())


PARTITION = SimpleNamespace(
    name="x",
    nodes=None,
    state="UP",
    is_default=False,
    is_root_only=False,
    max_time="UNLIMITED",
    default_time=None,
    max_nodes="UNLIMITED",
    max_cpus_per_node=None,
    allowed_accounts=["ALL"],
    denied_accounts=["ALL"],
    allowed_qos=["ALL"],
    denied_qos=["ALL"],
    allowed_groups=["ALL"],
)


def partition(**changes: object) -> PartitionFacts:
    return slurm_pyslurm._partition(SimpleNamespace(**{**vars(PARTITION), **changes}))


def test_a_partition_without_limits_in_the_words_of_pyslurm() -> None:
    assert partition() == PartitionFacts("x", "", "UP", False, None)


def test_limits_of_a_partition_in_the_words_of_pyslurm() -> None:
    part = partition(max_time=1440, default_time=10, max_nodes=2, max_cpus_per_node=16)
    assert (part.max_time_s, part.default_time_s) == (86_400, 600)
    assert (part.max_nodes, part.max_cpus_per_node) == (2, 16)
    assert part.open_to_all


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"allowed_accounts": ["a", "b"]}, "allow_accounts"),
        ({"denied_accounts": ["a", "b"]}, "deny_accounts"),
        ({"allowed_qos": ["a", "b"]}, "allow_qos"),
        ({"denied_qos": ["a", "b"]}, "deny_qos"),
        ({"allowed_groups": ["a", "b"]}, "allow_groups"),
    ],
)
def test_who_may_use_a_partition(changes: dict[str, object], field: str) -> None:
    part = partition(**changes)
    assert getattr(part, field) == ("a", "b")
    assert not part.open_to_all


def test_a_partition_for_root_only_is_not_open() -> None:
    assert not partition(is_root_only=True).open_to_all
