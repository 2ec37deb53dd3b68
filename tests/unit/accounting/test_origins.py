# SPDX-License-Identifier: Apache-2.0
"""The host of a credential and the node of its events."""

from __future__ import annotations

import logging

import pytest

from fairwatt.accounting.origins import KEEP_S, Origins, addresses_of
from fairwatt.core.errors import AuthError

HOSTS = {"gpu01": {"10.0.0.1", "10.1.0.1"}, "gpu02": {"10.0.0.2"}}


class Names:
    asked = 0
    now = 0.0

    def resolve(self, name):
        self.asked += 1
        return HOSTS.get(name, set())

    def clock(self):
        return self.now


@pytest.fixture
def names():
    return Names()


def origins(names, mode):
    return Origins(mode, resolve=names.resolve, clock=names.clock)


def test_a_node_speaks_for_itself_from_any_of_its_addresses(names):
    check = origins(names, "refuse").check
    check("10.0.0.1", {"gpu01"})
    check("10.1.0.1", {"gpu01"})
    check("10.9.9.9", set())  # decisions alone


def test_a_node_does_not_speak_for_another(names):
    with pytest.raises(AuthError, match=r"made on 10.0.0.2, which is none of .* node gpu01") as no:
        origins(names, "refuse").check("10.0.0.2", {"gpu01"})
    assert no.value.status == 403


@pytest.mark.parametrize("origin", ["", "127.0.0.1", "127.0.1.1"])
def test_what_proves_nothing_is_refused_where_proof_is_wanted(names, origin):
    with pytest.raises(AuthError, match="does not tell on which host it was made"):
        origins(names, "refuse").check(origin, {"gpu01"})


def test_a_node_that_nobody_knows(names, caplog):
    with pytest.raises(AuthError):
        origins(names, "refuse").check("10.0.0.1", {"cloud7"})
    origins(names, "warn").check("10.0.0.1", {"cloud7"})
    assert caplog.records == []


def test_a_warning_comes_once_for_each_node(names, caplog):
    caplog.set_level(logging.WARNING)
    check = origins(names, "warn").check
    for _ in range(3):
        check("10.0.0.2", {"gpu01"})
    assert [record.getMessage().split(";")[-1].strip() for record in caplog.records] == [
        "taken nevertheless (collector.check_origin)"
    ]


def test_off_asks_nobody(names):
    origins(names, "off").check("10.0.0.2", {"gpu01"})
    assert names.asked == 0


def test_names_are_looked_up_every_five_minutes(names):
    check = origins(names, "refuse").check
    check("10.0.0.1", {"gpu01"})
    names.now = KEEP_S
    check("10.0.0.1", {"gpu01"})
    assert names.asked == 1
    names.now = KEEP_S + 1
    check("10.0.0.1", {"gpu01"})
    assert names.asked == 2


def test_a_name_that_is_none():
    assert addresses_of("x" * 300) == frozenset()
    assert addresses_of("\udcff") == frozenset()
