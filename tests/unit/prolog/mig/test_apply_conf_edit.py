# SPDX-License-Identifier: Apache-2.0
"""One node's GPUs changed in Slurm's files: nothing else moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.core.errors import ConfigError
from fairwatt.prolog.mig.conf_edit import (
    gres_in_options,
    with_gres,
    with_gres_in_options,
    with_gres_lines,
)

NEW = "gpu:a100_3g.20gb:2"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("NodeName=n1 Gres=gpu:7 CPUs=4\n", f"NodeName=n1 Gres={NEW} CPUs=4\n"),
        ("NodeName=n1 CPUs=4 # no GPU\n", f"NodeName=n1 Gres={NEW} CPUs=4 # no GPU\n"),
        ('nodename=n1 gres="gpu:7"', f"nodename=n1 Gres={NEW}"),
        (
            "NodeName=n1 CPUs=4 \\\n  Gres=gpu:7 \\\n  State=UNKNOWN\n",
            f"NodeName=n1 CPUs=4 \\\n  Gres={NEW} \\\n  State=UNKNOWN\n",
        ),
        (
            "NodeName=n[0-3] Gres=gpu:7 CPUs=4\n",
            f"NodeName=n[0,2-3] Gres=gpu:7 CPUs=4\nNodeName=n1 Gres={NEW} CPUs=4\n",
        ),
        (
            "NodeName=n[1-2] Gres=gpu:7",
            f"NodeName=n2 Gres=gpu:7\nNodeName=n1 Gres={NEW}",
        ),
        (
            "#NodeName=n1 Gres=gpu:1\nNodeName=DEFAULT Gres=gpu:7\nNodeName=n1\n",
            f"#NodeName=n1 Gres=gpu:1\nNodeName=DEFAULT Gres=gpu:7\nNodeName=n1 Gres={NEW}\n",
        ),
    ],
)
def test_gres_of_a_node(before: str, after: str) -> None:
    assert with_gres(before, "n1", NEW) == after
    assert with_gres(after, "n1", NEW) == after, "a second time changes nothing"


def test_a_line_that_cannot_be_parted_is_named() -> None:
    text = "NodeName=n[1-2] NodeAddr=10.0.0.[1-2] Gres=gpu:7\n"
    with pytest.raises(ConfigError, match="give n1 a NodeName line of its own"):
        with_gres(text, "n1", NEW)
    with pytest.raises(ConfigError, match="no NodeName line"):
        with_gres("PartitionName=p Nodes=n1\n", "n1", NEW)


def test_gres_conf_lines_of_a_node() -> None:
    text = (
        "AutoDetect=off\n"
        "NodeName=n[1-2] Name=gpu Type=a File=/dev/nvidia0\n"
        "NodeName=n1 Name=gpu Type=b MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap3\n"
        "NodeName=n1 Name=shard Count=4\n"
        "NodeName=n3 Name=gpu Type=a File=/dev/nvidia0\n"
    )
    after = (
        "AutoDetect=off\n"
        "NodeName=n1 Name=gpu Type=new File=/dev/nvidia0\n"
        "NodeName=n2 Name=gpu Type=a File=/dev/nvidia0\n"
        "NodeName=n1 Name=shard Count=4\n"
        "NodeName=n3 Name=gpu Type=a File=/dev/nvidia0\n"
    )
    lines = ["NodeName=n1 Name=gpu Type=new File=/dev/nvidia0"]
    assert with_gres_lines(text, "n1", lines) == after
    assert with_gres_lines(after, "n1", lines) == after


def test_gres_conf_of_one_node_alone() -> None:
    line = ["NodeName=n1 Name=gpu Type=b File=/dev/nvidia1"]
    text = "Name=gpu Type=a File=/dev/nvidia[0-1]\nName=mps Count=100"
    assert with_gres_lines(text, "n1", line) == f"{line[0]}\nName=mps Count=100"
    assert with_gres_lines("# empty", "n1", line) == f"# empty\n{line[0]}\n"
    with pytest.raises(ConfigError, match="whose is this one"):
        with_gres_lines(f"{text}\nNodeName=n2 Name=gpu File=/dev/nvidia0\n", "n1", line)


OPTIONS = "# Gres=gpu:9\nSLURMD_OPTIONS=\"-Z --conf 'Gres=gpu:a100_1g.5gb:7 Feature=mig'\"\n"


def test_options_of_a_dynamic_node() -> None:
    assert gres_in_options(OPTIONS, "x") == "gpu:a100_1g.5gb:7"
    after = with_gres_in_options(OPTIONS, NEW, "x")
    assert after == OPTIONS.replace("gpu:a100_1g.5gb:7", NEW)
    drained = with_gres_in_options(OPTIONS, NEW, "x", drained=True)
    assert f"'Gres={NEW} State=DRAIN Feature=mig'" in drained
    assert with_gres_in_options(drained, NEW, "x") == after
    assert with_gres_in_options(drained, NEW, "x", drained=True) == drained


@pytest.mark.parametrize("text", ["", "SLURMD_OPTIONS=-Z\n", OPTIONS + OPTIONS])
def test_options_without_one_gres(text: str) -> None:
    with pytest.raises(ConfigError, match="SLURMD_OPTIONS"):
        with_gres_in_options(text, NEW, "/etc/default/slurmd")


@given(st.text(alphabet="NodeName=n12 Gres:gpu,[-]#\\\n\"'", max_size=80))
def test_other_text_never_moves(noise: str) -> None:
    """Whatever stands before a whole line, the node's own line is the only one that changes."""
    own = "NodeName=zz9 Gres=gpu:7 CPUs=1\n"
    text = noise.replace("\\", "") + "\n" + own
    assert with_gres(text, "zz9", NEW).replace(f"Gres={NEW}", "Gres=gpu:7") == text
