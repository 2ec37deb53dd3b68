# SPDX-License-Identifier: Apache-2.0
"""Facts on their way from the child that asks Slurm to policyd."""

from __future__ import annotations

import json

import msgspec
import pytest

from fairwatt.core import slurm_cli
from fairwatt.core.call import Completed
from fairwatt.core.errors import CommandError
from fairwatt.slurm_plugins import facts as facts_module
from fairwatt.slurm_plugins.facts import CHUNK_NODES, ChildReader, decode, encode, from_slurm
from fairwatt.slurm_plugins.site import Facts, Node, Partition, Stock, load_facts
from tests.fakes.sites import demo


def of(nodes: int) -> Facts:
    made = tuple(Node(f"n{i}", ("p",), (Stock("a100", 4),)) for i in range(nodes))
    return Facts(made, (Partition("p", default=True),), {"maint": "p"})


@pytest.mark.parametrize("nodes", [0, 1, CHUNK_NODES - 1, CHUNK_NODES, 2 * CHUNK_NODES + 1])
def test_facts_come_through_whatever_their_number(nodes):
    assert decode(encode(of(nodes))) == of(nodes)


def test_the_text_is_a_site_file_too(tmp_path):
    file = tmp_path / "site.json"
    file.write_text(encode(demo().facts))
    assert load_facts(file) == demo().facts


@pytest.mark.parametrize("text", ["", "\n", "{}", "[1]\n[2]\n", encode(of(300))[:-200]])
def test_another_text_is_refused(text):
    with pytest.raises(msgspec.MsgspecError):
        decode(text)


def test_what_did_not_change_is_the_same_object(monkeypatch):
    texts = [encode(of(1)), encode(of(1)), encode(of(2))]
    monkeypatch.setattr(facts_module, "call", lambda *_, **__: Completed(0, texts.pop(0), ""))
    read = ChildReader(None)
    first = read()
    assert read() is first
    assert read() == of(2)


NODE = {
    "name": "g1",
    "state": "idle",
    "gres": "gpu:a100:4",
    "cpus": 64,
    "real_memory": 1000,
    "partitions": ["gpu", "cloud"],
    "features": "",
}
PARTITIONS = "".join(
    f"PartitionName={name} Default=NO MaxTime=1-00:00:00 State=UP Nodes={nodes}"
    f" AllowAccounts={accounts}\n"
    for name, nodes, accounts in (
        ("gpu", "g1", "Physics"),
        ("cloud", "cl[01-02],g1", "ALL"),
        ("odd", "x[1][2][3][4]", "ALL"),
    )
)
PROGRAMS = {
    "nodes": json.dumps({"nodes": [NODE]}),
    "partitions": PARTITIONS,
    "reservations": "",
    "qos": "normal|\nLong|DenyOnLimit,PartitionTimeLimit\nwide|PartitionMaxNodes\n",
}


def read_from(monkeypatch, **programs: str | CommandError) -> Facts:
    """The facts of a cluster whose commands print these."""

    def answer(argv, **_):
        said = programs[next(word for word in programs if word in argv)]
        if isinstance(said, CommandError):
            raise said
        return Completed(0, said, "")

    monkeypatch.setattr(slurm_cli, "call", answer)
    return from_slurm("/x/slurm.conf", "cli")


def test_a_partition_with_nodes_that_slurm_does_not_show_is_not_whole(monkeypatch):
    """22.05 shows no node of the cloud that is off, and starts it when a job asks for it."""
    read = read_from(monkeypatch, **PROGRAMS)
    assert {part.name: part.whole for part in read.partitions} == {
        "gpu": True,
        "cloud": False,
        "odd": True,
    }


def test_accounts_of_a_partition_are_compared_in_small_letters(monkeypatch):
    read = read_from(monkeypatch, **PROGRAMS)
    assert read.partitions[0].accounts == ("physics",)


def test_the_qos_that_lift_limits_of_partitions(monkeypatch):
    read = read_from(monkeypatch, **PROGRAMS)
    assert (read.beyond_time, read.beyond_nodes) == (("long",), ("wide",))


@pytest.mark.parametrize(
    ("complaint", "beyond"),
    [
        ("You are not running a supported accounting_storage plugin", ()),
        ("sacctmgr: error: Sending PersistInit msg: Connection refused", None),
    ],
)
def test_without_slurmdbd_any_qos_may_lift_limits_but_not_without_accounting(
    monkeypatch, complaint, beyond
):
    failed = CommandError(["sacctmgr"], 1, complaint)
    read = read_from(monkeypatch, **{**PROGRAMS, "qos": failed})
    assert (read.beyond_time, read.beyond_nodes) == (beyond, beyond)
