# SPDX-License-Identifier: Apache-2.0
"""gres.conf and slurm.conf: the order of a node's GPUs as Slurm numbers them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairwatt.core.errors import ConfigError
from fairwatt.core.gres_conf import expand_files, read_gres

GRES = """
# two kinds of nodes
AutoDetect=off
NodeName=gpu[01-02] Name=gpu Type=a100 File=/dev/nvidia[0-1] Cores=0-7   # boards
nodename=MIG01 name=GPU type=a100 file=/dev/nvidia9
NodeName=mig01 Name=gpu Type=a100_1g.5gb \\
    MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[66-67]
NodeName=mig01 Name=gpu Type=a100_3g.20gb MultipleFiles=/dev/nvidia1,/d/nvidia-cap1,/d/nvidia-cap2
NodeName=mig01 Name=gpu Type=a100_1g.5gb MultipleFiles=/dev/nvidia0,/d/nvidia-cap75,/d/nvidia-cap76
NodeName=mig01 Name=shard Count=8
"""
SLURM = """
NodeName=DEFAULT CPUs=64
NodeName=gpu[01-02] Gres=gpu:a100:2
NodeName=mig01 Gres="gpu:a100_3g.20gb:1,gpu:a100_1g.5gb:2,shard:8"
"""


@pytest.fixture
def conf(tmp_path: Path) -> tuple[Path, Path]:
    gres, slurm = tmp_path / "gres.conf", tmp_path / "slurm.conf"
    gres.write_text(GRES)
    slurm.write_text(SLURM)
    return gres, slurm


def positions(conf: tuple[Path, Path], node: str) -> list[tuple[str | None, str]]:
    gres = read_gres(*conf, node)
    assert gres is not None
    return [(device.type, ",".join(device.files)) for device in gres.positions]


def test_whole_boards_stand_in_file_order(conf) -> None:
    assert positions(conf, "gpu02") == [("a100", "/dev/nvidia0"), ("a100", "/dev/nvidia1")]


def test_types_stand_in_the_order_of_slurm_conf(conf) -> None:
    """Measured on 22.05: stably sorted by slurm.conf's types, file numbers play no part."""
    assert positions(conf, "mig01") == [
        ("a100_3g.20gb", "/dev/nvidia1,/d/nvidia-cap1,/d/nvidia-cap2"),
        (
            "a100_1g.5gb",
            "/dev/nvidia0,/dev/nvidia-caps/nvidia-cap66,/dev/nvidia-caps/nvidia-cap67",
        ),
        ("a100_1g.5gb", "/dev/nvidia0,/d/nvidia-cap75,/d/nvidia-cap76"),
    ]


def test_without_slurm_conf_the_order_of_several_types_is_unknown(conf) -> None:
    conf[1].unlink()
    gres = read_gres(*conf, "mig01")
    assert gres is not None
    assert gres.positions == ()
    assert "order of GPU types is unknown" in str(gres.problem)
    assert len(positions(conf, "gpu01")) == 2  # one type needs no order


def test_default_gres_and_included_files(conf) -> None:
    gres, slurm = conf
    (slurm.parent / "nodes.conf").write_text(
        "NodeName=DEFAULT Gres=gpu:a100_1g.5gb:2,gpu:a100_3g.20gb:1\nNodeName=mig0[1-9] CPUs=4\n"
    )
    slurm.write_text("ClusterName=x\ninclude nodes.conf\n")
    assert [type_ for type_, _ in positions((gres, slurm), "mig01")] == [
        "a100_1g.5gb",
        "a100_1g.5gb",
        "a100_3g.20gb",
    ]


def test_other_nodes_and_missing_files_have_no_positions(conf) -> None:
    assert read_gres(*conf, "cpu01") is None
    assert read_gres(conf[0].with_name("none"), conf[1], "gpu01") is None


def test_lines_without_node_name_are_for_all(tmp_path) -> None:
    (tmp_path / "gres.conf").write_text("Name=gpu File=/dev/nvidia[2,0]\nName=gpu Count=2\n")
    gres = read_gres(tmp_path / "gres.conf", tmp_path / "slurm.conf", "any")
    assert gres is not None
    assert [device.files for device in gres.positions] == [
        ("/dev/nvidia2",),
        ("/dev/nvidia0",),
        (),
        (),
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("NodeName=gpu[01- Name=gpu File=/dev/nvidia0", r"gres\.conf:1: "),
        ("Name=gpu Count=many", "Count is no number"),
        ("include gres.conf", "too deep"),
        ("include absent.conf", "cannot be read"),
    ],
)
def test_bad_lines_name_place_and_value(tmp_path, line: str, text: str) -> None:
    (tmp_path / "gres.conf").write_text(line + "\n")
    with pytest.raises(ConfigError, match=text) as caught:
        read_gres(tmp_path / "gres.conf", tmp_path / "slurm.conf", "gpu01")
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("/dev/nvidia[0-2]", ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"]),
        ("/dev/n[08-10]", ["/dev/n08", "/dev/n09", "/dev/n10"]),
        ("/a,/b[1,3]", ["/a", "/b1", "/b3"]),
        ("/g[0-1]/c[5,4]", ["/g0/c5", "/g0/c4", "/g1/c5", "/g1/c4"]),
    ],
)
def test_file_ranges_keep_their_order(text: str, names: list[str]) -> None:
    assert expand_files(text) == names
