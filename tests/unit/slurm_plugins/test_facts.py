# SPDX-License-Identifier: Apache-2.0
"""Facts on their way from the child that asks Slurm to policyd."""

from __future__ import annotations

import msgspec
import pytest

from fairwatt.core.call import Completed
from fairwatt.slurm_plugins import facts as facts_module
from fairwatt.slurm_plugins.facts import CHUNK_NODES, ChildReader, decode, encode
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
