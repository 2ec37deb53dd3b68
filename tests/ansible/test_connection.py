# SPDX-License-Identifier: Apache-2.0
"""The connection plugin: files and exit statuses pass whole, errors name host and place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ansible.booted import BootedLab
from tests.ansible.playbooks import ansible_env
from tests.ansible.test_booted import spec

pytestmark = pytest.mark.ansible

AdHoc = Callable[..., str]


@pytest.fixture(scope="module")
def lab() -> Iterator[BootedLab]:
    with BootedLab([spec("one", 1)]) as running:
        yield running


@pytest.fixture
def ad_hoc(lab: BootedLab, tmp_path: Path) -> AdHoc:
    """Runs one module on the node (or on a leader given) and returns what ansible said."""

    def run(module: str, arguments: str, leader: int = lab["one"].leader) -> str:
        host = {"nspawn_leader": leader, "ansible_python_interpreter": "/usr/bin/python3"}
        hosts = {"all": {"hosts": {"one": {"ansible_connection": "nspawn", **host}}}}
        inventory = tmp_path / "inventory.json"
        inventory.write_text(json.dumps(hosts))
        argv = [str(Path(sys.executable).with_name("ansible")), "-i", str(inventory), "one"]
        return subprocess.run(
            [*argv, "-m", module, "-a", arguments],
            env=ansible_env(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        ).stdout

    return run


def test_a_file_arrives_and_returns_as_it_was(lab, ad_hoc, tmp_path):
    content = bytes(range(256)) * 4096
    (tmp_path / "it's here").write_bytes(content)
    assert "CHANGED" in ad_hoc("copy", f"src=\"{tmp_path}/it's here\" dest='/root/a b'")
    assert lab["one"].path("/root/a b").read_bytes() == content
    assert "CHANGED" in ad_hoc("fetch", f"src='/root/a b' dest={tmp_path}/back flat=true")
    assert (tmp_path / "back").read_bytes() == content


def test_a_command_runs_on_the_node_and_its_status_counts(ad_hoc):
    said = ad_hoc("shell", "hostname; echo this to stderr >&2; exit 7")
    assert "one | FAILED | rc=7 >>\none" in said
    assert "this to stderr" in said


def test_a_node_that_has_left_is_unreachable(ad_hoc):
    child = subprocess.Popen(["true"])
    child.wait()
    said = ad_hoc("ping", "", child.pid)
    assert "UNREACHABLE" in said
    assert f"process {child.pid} (its init) is gone" in said
