# SPDX-License-Identifier: Apache-2.0
"""The Slurm client against answers recorded from 22.05, 24.11 and 26.05."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairwatt.core.errors import CommandError, SlurmError
from fairwatt.core.gres import Gres, Spelling
from fairwatt.core.slurm import (
    ChosenBackend,
    NodeFacts,
    PartitionFacts,
    SlurmClient,
    spelling_of_version,
)

DATA = Path(__file__).parents[2] / "data"
RECORDED = DATA / "22.05"
NEWER = {"24.11": (24, 11, 5), "26.05": (26, 5, 5)}

Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Return a function that puts programs on PATH: `play(scontrol="shell lines")`."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(**programs: str) -> None:
        for name, body in programs.items():
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)

    return put


def recorded(name: str, folder: Path = RECORDED) -> str:
    return f"cat {shlex.quote(str(folder / name))}"


OLD_SCONTROL = f"""
case "$*" in
  *--json*) echo "scontrol: unrecognized option '--json'" >&2; exit 1;;
  *partitions*) {recorded("partitions.txt")};;
  *config*) {recorded("config.txt")};;
  ping) {recorded("ping.txt")};;
esac
"""


def new_scontrol(release: str) -> str:
    """scontrol as recorded from a newer release by tests.lab.record."""
    folder = DATA / release
    return f"""
case "$*" in
  "show nodes --json") {recorded("nodes.json", folder)};;
  *partitions*) {recorded("partitions.txt", folder)};;
  *config*) {recorded("config.txt", folder)};;
  ping) {recorded("ping.txt", folder)};;
  *) exit 1;;
esac
"""


@pytest.fixture(params=["22.05", *NEWER])
def release(request: pytest.FixtureRequest, play: Play) -> str:
    """A release whose recorded programs are on PATH."""
    if request.param == "22.05":
        play(scontrol=OLD_SCONTROL, sinfo=recorded("sinfo.json"))
    else:
        play(scontrol=new_scontrol(request.param), sinfo="exit 1")
    return str(request.param)


def test_reads_the_nodes_of_each_release(release: str) -> None:
    nodes = {node.name: node for node in SlurmClient().nodes()}
    assert nodes["gpu01"] == NodeFacts(
        name="gpu01",
        state="IDLE",
        flags=(),
        gres=(Gres("gpu", "a100", 4),),
        cpus=64,
        mem_mib=512_000,
        partitions=("gpu", "all"),
        features=("a100",),
        active_features=("a100",),
        sockets=2,
    )
    assert nodes["mig01"].gres == (
        Gres("gpu", "a100_1g.5gb", 7),
        Gres("gpu", "a100_3g.20gb", 2),
    )
    assert sorted(nodes) == ["gpu01", "gpu02", "h01", "mig01"]


def test_reads_the_partitions_of_each_release(release: str) -> None:
    first, *others = SlurmClient().partitions()
    assert first == PartitionFacts(
        name="gpu",
        nodes="gpu[01-02],h01",
        state="UP",
        default=True,
        max_time_s=86_400,
        billing_weights="CPU=1,GRES/gpu=10",
        default_time_s=600,
    )
    assert [(part.name, part.default) for part in others] == [("mig", False), ("all", False)]


def test_reads_the_version_and_settings_of_each_release(release: str) -> None:
    client = SlurmClient()
    assert client.version() == NEWER.get(release, (22, 5, 8))
    assert client.config()["ClusterName"] == "campus"
    assert "gres/gpu" in client.config()["AccountingStorageTRES"].split(",")
    assert client.is_up()


def test_reads_the_reservations_of_22_05(play: Play) -> None:
    play(
        scontrol="""cat <<'END'
ReservationName=course StartTime=2026-11-30T12:46:03 Nodes=h01 PartitionName=closed Flags=
ReservationName=any StartTime=2026-11-30T12:46:03 Nodes=gpu01 PartitionName=(null) Flags=
END"""
    )
    assert SlurmClient().reservations() == {"course": "closed", "any": ""}
    play(scontrol="echo 'No reservations in the system'")
    assert SlurmClient().reservations() == {}


def test_an_unlimited_partition_without_nodes(play: Play) -> None:
    play(
        scontrol="echo 'PartitionName=x Default=NO MaxTime=UNLIMITED Nodes=(null) State=DRAIN "
        "TRES=(null)'"
    )
    assert SlurmClient().partitions() == [PartitionFacts("x", "", "DRAIN", False, None, "")]


RESTRICTED = (
    "PartitionName=x AllowGroups=staff DenyAccounts=a,b AllowQos=q1 Default=NO QoS=N/A"
    " DefaultTime=NONE MaxNodes=2 MaxTime=2-03:04:05 RootOnly=NO MaxCPUsPerNode=16"
    " Nodes=n1 State=DOWN TRES=cpu=240,node=3 TRESBillingWeights=CPU=1"
)


def test_the_limits_of_a_partition_and_who_may_use_it(play: Play) -> None:
    play(scontrol=f"echo {shlex.quote(RESTRICTED)}")
    (part,) = SlurmClient().partitions()
    assert part == PartitionFacts(
        name="x",
        nodes="n1",
        state="DOWN",
        default=False,
        max_time_s=183_845,
        billing_weights="CPU=1",
        open_to_all=False,
        default_time_s=None,
        max_nodes=2,
        max_cpus_per_node=16,
        allow_accounts=None,
        deny_accounts=("a", "b"),
        allow_qos=("q1",),
        deny_qos=(),
        allow_groups=("staff",),
    )


def test_a_comment_does_not_pass_for_a_partition(play: Play) -> None:
    play(scontrol="echo 'ReservationName=r PartitionName=a Comment=x PartitionName=b'")
    assert SlurmClient().reservations() == {"r": "a"}


class Changing:
    """A backend whose partitions change between some readings."""

    def __init__(self, *readings: str) -> None:
        self.readings = list(readings)

    def nodes(self) -> list[NodeFacts]:
        return []

    def reservations(self) -> dict[str, str]:
        return {"course": self.readings[0]}

    def partitions(self) -> list[PartitionFacts]:
        return [PartitionFacts(self.readings.pop(0), "", "UP", False, None)]


def client_of(backend: Changing) -> SlurmClient:
    client = SlurmClient()
    client.chosen = ChosenBackend("test", "", backend)
    return client


def test_a_snapshot_is_read_again_until_the_partitions_stay() -> None:
    snapshot = client_of(Changing("a", "b", "b", "never asked")).snapshot()
    assert [part.name for part in snapshot.partitions] == ["b"]
    assert snapshot.reservations == {"course": "b"}


def test_a_snapshot_of_what_never_rests() -> None:
    with pytest.raises(SlurmError, match="changed during each of 3 readings"):
        client_of(Changing("a", "b", "c", "d")).snapshot()


class Unreadable(Changing):
    """pyslurm on a cluster with a GRES that it cannot read."""

    def nodes(self) -> list[NodeFacts]:
        raise ValueError("invalid literal for int() with base 10: 'no_consume'")


def test_what_pyslurm_cannot_read_the_command_line_reads(play: Play) -> None:
    play(scontrol=new_scontrol("26.05"))
    client = SlurmClient(backend="auto")
    client.chosen = ChosenBackend("pyslurm", "", Unreadable("a"))
    assert len(client.nodes()) == 4
    assert (client.chosen.name, client.chosen.reason) == (
        "cli",
        "pyslurm cannot read Slurm's nodes",
    )


def test_what_pyslurm_cannot_read_is_an_error_where_it_is_wanted() -> None:
    client = SlurmClient(backend="pyslurm")
    client.chosen = ChosenBackend("pyslurm", "", Unreadable("a"))
    with pytest.raises(SlurmError, match=r"Slurm's nodes: .*no_consume"):
        client.nodes()


def new_node(**changes: Any) -> str:
    node = {
        "name": "n1",
        "state": ["MIXED", "DRAIN"],
        "gres": "gpu:nvidia_h200_nvl_4g.71gb:2(S:0-1)",
        "cpus": 64,
        "real_memory": {"set": True, "infinite": False, "number": 512_000},
        "partitions": ["gpu"],
        "features": ["hbm", "ib"],
        "active_features": ["ib"],
        "sockets": 2,
    }
    return f"echo {shlex.quote(json.dumps({'nodes': [{**node, **changes}], 'errors': []}))}"


def test_reads_flags_and_dots_in_the_shape_of_newer_releases(play: Play) -> None:
    play(scontrol=new_node())
    (node,) = SlurmClient().nodes()
    assert (node.state, node.flags) == ("MIXED", ("DRAIN",))
    assert node.gres == (Gres("gpu", "nvidia_h200_nvl_4g.71gb", 2, suffixes=("S:0-1",)),)
    assert (node.cpus, node.mem_mib) == (64, 512_000)
    assert (node.features, node.active_features, node.sockets) == (("hbm", "ib"), ("ib",), 2)


def test_unset_numbers_are_not_amounts(play: Play) -> None:
    play(
        scontrol=new_node(
            real_memory={"set": False, "infinite": False, "number": 7},
            cpus=2**32 - 2,
            gres="",
            features="",
        )
    )
    (node,) = SlurmClient().nodes()
    assert (node.cpus, node.mem_mib, node.gres, node.features) == (None, None, (), ())


@pytest.mark.parametrize(
    "answer",
    [
        "echo not json",
        "echo '{}'",
        "echo '[]'",
        "echo '{\"nodes\": [3]}'",
        new_node(name=3),
        new_node(cpus=[]),
        new_node(gres="gpu:::"),
        new_node(real_memory={}),
    ],
)
def test_an_unknown_answer_is_an_error_of_slurm(play: Play, answer: str) -> None:
    play(scontrol=answer)
    with pytest.raises(SlurmError, match=r"Slurm's nodes: an answer in no known shape"):
        SlurmClient().nodes()


def test_a_partition_in_no_known_shape(play: Play) -> None:
    play(scontrol="echo 'PartitionName=x MaxTime=soon'")
    with pytest.raises(SlurmError, match="Slurm's partitions"):
        SlurmClient().partitions()


def test_other_failures_of_scontrol_are_not_taken_for_an_old_one(play: Play) -> None:
    play(scontrol="echo 'Unable to contact slurm controller' >&2; exit 1", sinfo="exit 0")
    with pytest.raises(CommandError, match="Unable to contact"):
        SlurmClient().nodes()


def test_no_controller(play: Play) -> None:
    play(scontrol="echo 'Slurmctld(primary) at h is DOWN'; exit 1")
    assert not SlurmClient().is_up()
    with pytest.raises(CommandError):
        SlurmClient().version()


def test_a_config_without_version(play: Play) -> None:
    play(scontrol="echo 'SLURM_VERSION = soon'")
    with pytest.raises(SlurmError, match="no version"):
        SlurmClient().version()


def test_the_named_slurm_conf_is_used(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/other")
    play(scontrol='echo "SLURM_CONF = $SLURM_CONF"')
    assert SlurmClient("/this").config() == {"SLURM_CONF": "/this"}
    assert SlurmClient("").config() == {"SLURM_CONF": "/other"}


@pytest.mark.parametrize(
    ("version", "spelling"),
    [
        ((20, 11, 9), Spelling.BARE),
        ((21, 8, 0), Spelling.COLON),
        ((22, 5, 8), Spelling.COLON),
        ((23, 2, 7), Spelling.COLON),
        ((23, 11, 0), Spelling.SLASH),
        ((26, 5, 5), Spelling.SLASH),
    ],
)
def test_spelling_by_version(version: tuple[int, int, int], spelling: Spelling) -> None:
    assert spelling_of_version(version) is spelling
