# SPDX-License-Identifier: Apache-2.0
"""The demo's `shell` command, and its port."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.demo import refuse_taken
from tests.lab.demo_shell import install_shell
from tests.lab.programs import command


@pytest.fixture(scope="module")
def shell(cluster: OneHostCluster) -> Path:
    return install_shell(cluster.paths, cluster.env, Path(command()[0]), cluster.config_path)


def _run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.lab
def test_a_user_submits_from_the_shell(cluster: OneHostCluster, shell: Path) -> None:
    done = _run(shell, "ada", "-c", "sbatch --gres=gpu:20gb:1 --wrap='id -un >who' && pwd")
    assert done.returncode == 0, done.stderr
    assert "FW101" in done.stderr
    assert done.stdout.endswith(f"{cluster.paths.home}/ada\n")
    found = re.search(r"Submitted batch job (\d+)", done.stdout)
    assert found is not None
    assert cluster.wait_job(found[1]) == ["COMPLETED"]
    assert (cluster.paths.home / "ada" / "who").read_text() == "ada\n"


@pytest.mark.lab
def test_root_asks_the_doctor_from_the_shell(shell: Path) -> None:
    done = _run(shell, "root", "-c", "fairwatt doctor --json; sinfo --noheader")
    assert '"ok"' in done.stdout
    assert "mig01" in done.stdout


@pytest.mark.lab
def test_the_shell_names_its_users(shell: Path) -> None:
    done = _run(shell, "mallory")
    assert done.returncode == 2
    assert "no user mallory here; there are root ada ben" in done.stderr


def test_a_taken_port_is_one_line_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=rf"port {port} .*PORT={port + 1}"):
            refuse_taken(port)
    refuse_taken(port)
