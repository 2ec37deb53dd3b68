# SPDX-License-Identifier: Apache-2.0
"""The collection passes ansible-lint's strictest profile with nothing skipped, and builds."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.ansible.roles import COLLECTION

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """A home of its own, with the collection where Ansible looks for it."""
    home = tmp_path_factory.mktemp("lint")
    place = home / "ansible_collections" / "fairwatt" / "cluster"
    place.parent.mkdir(parents=True)
    place.symlink_to(COLLECTION)
    return {
        "PATH": f"{BIN}:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "ANSIBLE_HOME": str(home / "ansible"),
        "ANSIBLE_COLLECTIONS_PATH": str(home),
    }


def run(env: Mapping[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / argv[0]), *argv[1:]],
        cwd=COLLECTION,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_lint_finds_nothing_in_the_profile_production(env):
    done = run(env, "ansible-lint", "--profile", "production", "--offline", "--nocolor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Profile 'production' was required, and it passed" in done.stderr


def test_nothing_is_skipped_or_only_warned_of():
    # yamllint's rules are those that ansible-lint checks too; ignore lists stay empty.
    assert not list(COLLECTION.rglob(".ansible-lint*"))
    for path in COLLECTION.rglob("*.y*ml"):
        text = path.read_text(encoding="utf-8")
        assert "noqa" not in text, path
        assert "yamllint disable" not in text, path


def test_yamllint_finds_nothing(env):
    rules = yaml.safe_dump(
        {
            "extends": "default",
            "rules": {
                "line-length": {"max": 160},
                "comments": {"min-spaces-from-content": 1},
                "comments-indentation": False,
                "braces": {"max-spaces-inside": 1},
                "octal-values": {"forbid-implicit-octal": True, "forbid-explicit-octal": True},
            },
        }
    )
    done = run(env, "yamllint", "--strict", "-d", rules, ".")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("playbook", ["site", "check", "uninstall"])
def test_a_playbook_is_understood(env, playbook):
    done = run(
        env,
        "ansible-playbook",
        "--syntax-check",
        "-i",
        "localhost,",
        f"fairwatt.cluster.{playbook}",
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tarball_holds_what_is_needed_and_no_more(env, tmp_path):
    done = run(env, "ansible-galaxy", "collection", "build", "--output-path", str(tmp_path), ".")
    assert done.returncode == 0, done.stderr
    (tarball,) = tmp_path.glob("fairwatt-cluster-*.tar.gz")
    with tarfile.open(tarball) as archive:
        names = {member.name for member in archive if member.isfile()}
    ours = {str(path.relative_to(COLLECTION)) for path in COLLECTION.rglob("*") if path.is_file()}
    assert names == (ours - {"galaxy.yml"}) | {"MANIFEST.json", "FILES.json"}
