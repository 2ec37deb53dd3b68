# SPDX-License-Identifier: Apache-2.0
"""What is made again after a reboot: what Slurm's files say, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairwatt.core import config as config_module
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError
from fairwatt.prolog.mig.cuts import Cut
from fairwatt.prolog.mig.here import read_here
from fairwatt.prolog.mig.journal import Begun, Journal, Mark, Target
from fairwatt.prolog.mig.read_live import read_live
from fairwatt.prolog.mig.restore import restore
from tests.fakes.loaded import build_library, loaded_nvml, missing_tools
from tests.fakes.machines import empty_mig_node
from tests.fakes.nvml_control import FakeNvml

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or missing_tools() is not None,
    reason="NVML lets only root change MIG; the fake library needs a compiler",
)

SMALL, LARGE = "gpu:a100_1g.5gb:7", "gpu:a100_3g.20gb:2"
LAYOUTS = """\
[layouts.small]
profiles = { "1g.5gb" = 7 }
[nodes]
n1 = "small"
"""


@pytest.fixture
def board(tmp_path):
    build_library()
    fake = FakeNvml(tmp_path / "control")
    with loaded_nvml(fake.path):
        yield empty_mig_node(fake, "n1")[0]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "mig.toml").write_text(LAYOUTS)
    (tmp_path / "gres.conf").write_text("AutoDetect=nvml\n")
    path = tmp_path / "fairwatt.toml"
    path.write_text(
        f'agent.node = "n1"\nsite.slurm_conf = "{tmp_path}/slurm.conf"\n'
        f'mig.file = "{tmp_path}/mig.toml"\nmig.state_dir = "{tmp_path}/state"\n'
    )
    return config_module.load(path)


def say(tmp_path: Path, gres: str) -> None:
    (tmp_path / "slurm.conf").write_text(f"NodeName=n1 Gres={gres} CPUs=8\n")


def placed() -> list[tuple[str, int]]:
    return [tuple(each) for each in read_live("n1").gpus[0].placed or ()]


def change(tmp_path: Path, board, *done: str) -> Journal:
    """A change from small to large whose files were written on these ways."""
    small = tuple(("1g.5gb", start) for start in range(7))
    large = (("3g.20gb", 0), ("3g.20gb", 4))
    old = Target("old", (Cut(board.uuid, 0, True, small),), SMALL, {"a100_1g.5gb": 7})
    new = Target("large", (Cut(board.uuid, 0, True, large),), LARGE, {"a100_3g.20gb": 2})
    begun = Begun(t_ms=1, node="n1", old=old, new=new, dynamic=False, by_hand=False)
    journal = Journal.begin(tmp_path / "state", begun)
    for way in done:
        journal.append(Mark(t_ms=2, way=way, step="files", phase="done"))
    return journal


def test_the_declared_layout_if_slurm_has_it(board, config, tmp_path) -> None:
    say(tmp_path, SMALL)
    assert len(restore(config, read_here(config, "n1"))) == 7
    assert placed() == [("1g.5gb", start) for start in range(7)]
    assert restore(config, read_here(config, "n1")) == []


def test_not_what_is_declared_but_was_never_applied(board, config, tmp_path) -> None:
    say(tmp_path, LARGE)
    with pytest.raises(ConfigError, match=r"2 x a100_3g\.20gb"):
        restore(config, read_here(config, "n1"))
    assert placed() == []


@pytest.mark.parametrize(
    ("gres", "done", "first"),
    [
        (LARGE, ("forward",), "3g.20gb"),
        (SMALL, (), "1g.5gb"),
        (SMALL, ("forward", "back"), "1g.5gb"),
    ],
)
@pytest.mark.parametrize("ended", [True, False])
def test_what_a_change_wrote_last(board, config, tmp_path, gres, done, first, ended) -> None:
    """Also if the power went in the middle of it."""
    journal = change(tmp_path, board, *done)
    if ended:
        journal.end("applied")
    say(tmp_path, gres)
    assert restore(config, read_here(config, "n1"))
    assert placed()[0] == (first, 0)
