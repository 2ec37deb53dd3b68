# SPDX-License-Identifier: Apache-2.0
"""`fairwatt mig` from end to end: fake NVML, real files, Slurm's recorded answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairwatt.core.errors import ConfigError, DeviceError
from fairwatt.prolog.mig.commands import FOUND, mig
from fairwatt.prolog.mig.read_live import read_live
from tests.fakes.loaded import build_library, loaded_nvml, missing_tools
from tests.fakes.machines import mig_node
from tests.fakes.nvml_control import FakeNvml

DATA = Path(__file__).parents[3] / "data"
LAYOUTS = """
[layouts.small]
profiles = { "1g.5gb" = 7 }
[layouts.large]
profiles = ["3g.20gb", "3g.20gb"]
[nodes]
mig01 = { "0" = "small", "1" = "large" }
[plan]
allowed = { mig01 = ["small", "large"] }
min_wait_s = 0
"""
SLURM = "ClusterName=c\nNodeName=mig01 Gres=gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:7 CPUs=4\n"


@pytest.fixture
def site(tmp_path, monkeypatch) -> Path:
    """A folder with all files of a node mig01 that is in order, and FAIRWATT_CONFIG."""
    (tmp_path / "slurm.conf").write_text(SLURM)
    (tmp_path / "gres.conf").write_text("AutoDetect=nvml\n")
    (tmp_path / "mig.toml").write_text(LAYOUTS)
    (tmp_path / "fairwatt.toml").write_text(
        f'[site]\nslurm_conf = "{tmp_path}/slurm.conf"\nslurm_backend = "cli"\n'
        f'[mig]\nfile = "{tmp_path}/mig.toml"\n[agent]\nnode = "mig01"\n'
        f'proc_root = "{tmp_path}/proc"\n'
    )
    monkeypatch.setenv("FAIRWATT_CONFIG", str(tmp_path / "fairwatt.toml"))
    return tmp_path


@pytest.fixture
def boards(site):
    """Board 0 with seven small instances, board 1 with two large ones; their cap files."""
    reason = missing_tools()
    if reason:
        pytest.skip(reason)
    build_library()
    fake = FakeNvml(site / "control")
    fake.set_clock(1_000)
    gpus = mig_node(fake, "mig01")
    caps = site / "proc" / "driver" / "nvidia-caps"
    caps.mkdir(parents=True)
    lines = ["config 1", "monitor 2"]
    for gpu in gpus:
        for each in gpu.instances:
            cap = 100 * gpu.minor + 3 * each.gi
            lines.append(f"gpu{gpu.minor}/gi{each.gi}/access {cap}")
            lines.append(f"gpu{gpu.minor}/gi{each.gi}/ci0/access {cap + 1}")
    (caps / "mig-minors").write_text("\n".join(lines))
    with loaded_nvml(fake.path):
        yield gpus


def run(*args: str) -> Result:
    return CliRunner().invoke(mig, args)


def test_the_boards_as_the_driver_shows_them(site, boards) -> None:
    live = read_live("mig01", site / "proc")
    small, large = live.gpus
    assert (small.minor, small.mig, small.uuid) == (0, True, boards[0].uuid)
    assert [each.start for each in small.instances] == [0, 1, 2, 3, 4, 5, 6]
    assert [(each.gi, each.profile, each.start) for each in large.instances] == [
        (1, "3g.20gb", 0),
        (2, "3g.20gb", 4),
    ]
    assert [each.uuid for each in large.instances] == [each.uuid for each in boards[1].instances]
    assert live.caps[1, 2, None] == 106
    assert live.caps[1, 2, 0] == 107


def test_an_older_driver_names_no_profiles(site, boards, monkeypatch) -> None:
    import pynvml

    ask = pynvml.nvmlDeviceGetGpuInstanceProfileInfo

    def old(handle, profile, version=2):
        if version == 2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return ask(handle, profile, version=version)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetGpuInstanceProfileInfo", old)
    small, large = read_live("mig01").gpus
    assert [each.profile for each in small.instances] == ["1g.5gb"] * 7
    assert [each.profile for each in large.instances] == ["3g.20gb"] * 2


def test_without_a_driver(site, monkeypatch) -> None:
    import pynvml

    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    with pytest.raises(DeviceError, match="run this on the GPU node"):
        read_live("mig01")


@pytest.mark.usefixtures("boards")
class TestOnTheNode:
    def test_lint_of_a_node_in_order(self) -> None:
        found = run("lint")
        assert (found.exit_code, found.output) == (0, "mig01: good\n")
        assert json.loads(run("lint", "--json").output) == []

    def test_lint_prints_the_line_to_write(self, site) -> None:
        (site / "slurm.conf").write_text(SLURM.replace("3g.20gb:2", "3g.20gb:3"))
        found = run("lint")
        assert found.exit_code == FOUND
        assert f"{site}/slurm.conf:2: FWM113 error: 3 x a100_3g.20gb configured" in found.output
        assert f"write: {SLURM.splitlines()[1]}" in found.output
        (one,) = json.loads(run("lint", "--json").output)
        assert (one["code"], one["write"]) == ("FWM113", SLURM.splitlines()[1])

    def test_generate_in_both_styles(self, site) -> None:
        found = run("generate")
        assert found.exit_code == 0
        assert SLURM.splitlines()[1] in found.output.splitlines()
        assert "NodeName=mig01 AutoDetect=nvml" in found.output.splitlines()
        made = json.loads(run("generate", "--style", "files", "--json").output)
        assert made["differs"] == []
        assert len(made["lines"]) == 9
        caps = "/dev/nvidia-caps/nvidia-cap"
        assert made["lines"][-1] == (
            "NodeName=mig01 Name=gpu Type=a100_3g.20gb "
            f"MultipleFiles=/dev/nvidia1,{caps}106,{caps}107"
        )
        (site / "gres.conf").write_text("\n".join(made["lines"]))
        assert run("lint").exit_code == 0

    def test_generate_says_what_is_not_yet_so(self, site) -> None:
        text = LAYOUTS.replace('"1" = "large"', '"1" = "small"')
        (site / "mig.toml").write_text(text)
        found = run("generate")
        assert "# not yet so: /dev/nvidia1: it holds 3g.20gb@0, 3g.20gb@4" in found.output
        assert "Gres=gpu:a100_1g.5gb:14 CPUs=4" in found.output

    def test_show(self) -> None:
        text = run("show").output
        assert "    MIG on: 3g.20gb@0 3g.20gb@4\n    for Slurm: 2 x a100_3g.20gb" in text
        rows = json.loads(run("show", "--json").output)
        assert [row["declared"] for row in rows] == ["small", "large"]
        assert [row["differs"] for row in rows] == [None, None]

    def test_a_malformed_file_is_one_message_and_nothing_else(self, site) -> None:
        (site / "mig.toml").write_text(LAYOUTS.replace("3g.20gb", "3g.21gb"))
        found = run("lint")
        assert isinstance(found.exception, ConfigError)
        assert f"{site}/mig.toml:5: layouts.large.profiles: no such MIG profile" in str(
            found.exception
        )


class TestPlan:
    @pytest.fixture
    def slurm(self, site, monkeypatch):
        """Commands that answer as 24.11 did, an hour later; returns the folder of the answers."""
        monkeypatch.setattr("fairwatt.prolog.mig.here.time.time", lambda: 1_796_054_300.0)
        for name, answer in (("squeue", "squeue.json"), ("scontrol", "nodes.json")):
            (site / answer).write_text((DATA / "24.11" / answer).read_text())
            script = site / "bin" / name
            script.parent.mkdir(exist_ok=True)
            script.write_text(f'#!/bin/sh\nexec cat "{site / answer}"\n')
            script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{site / 'bin'}:/usr/bin:/bin")
        return site

    def test_what_waits_and_why_nothing_is_proposed(self, slurm) -> None:
        """Job 11 waits for a small slice, and mig01 alone has such."""
        found = run("plan")
        assert found.exit_code == 0, found.output
        assert "28 wait for a100_3g.20gb" in found.output
        assert "no node would be left for 11" in found.output

    def test_a_proposal(self, slurm) -> None:
        jobs = json.loads((slurm / "squeue.json").read_text())
        jobs["jobs"] = [each for each in jobs["jobs"] if each["job_id"] != 11]
        (slurm / "squeue.json").write_text(json.dumps(jobs))
        found = run("plan")
        assert found.exit_code == FOUND
        assert "1. mig01  0: small -> large" in found.output
        plan = json.loads(run("plan", "--json").output)
        assert plan["dry_run"] is True
        assert (plan["starts_now"], plan["starts_then"]) == (2, 4)
        (proposal,) = plan["proposals"]
        assert proposal["boards"] == [{"number": 0, "before": "small", "after": "large"}]
        assert proposal["gives"] == {"a100_3g.20gb": 2}
        assert proposal["takes"] == {"a100_1g.5gb": 7}
