# SPDX-License-Identifier: Apache-2.0
"""`fairwatt health` on a terminal: the table, exit statuses, one round, baseline, doctor."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from fairwatt.core import config as config_module
from fairwatt.core.call import Completed, call
from fairwatt.core.doctor import run_checks
from fairwatt.core.verdict import CheckState, Finding, Verdict, encode_verdict
from fairwatt.prolog.health.doctor import checks as doctor_checks
from fairwatt.prolog.health.shown import age, verdict_text
from fairwatt.prolog.health.spec import load_checks
from tests.fakes.machines import a100_node
from tests.fakes.nvml_control import FakeNvml

NOW_MS = 1_800_000_000_000
LOST = Finding(
    code="FWH101",
    severity="bad",
    action="drain",
    device="GPU-a",
    value="lost",
    text="the GPU at 0000:07:00 is lost",
    since_ms=NOW_MS - 300_000,
    confirmed=True,
    drain="drained",
)
LATE = Finding(code="FWH904", severity="unknown", text="no answer", since_ms=NOW_MS)
CHECKS = (
    CheckState(code="FWH101", name="gpu_lost", state="bad"),
    CheckState(code="FWH302", name="pcie_width", state="ok"),
    CheckState(code="FWH205", name="retired_pending", state="unknown", note="FWH902: retired"),
)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    fake = FakeNvml(tmp_path / "nvml.control")
    a100_node(fake, "n1", count=2)
    (tmp_path / "kmsg").touch()
    keys = {
        "health.dir": "health",
        "health.state_file": "health.json",
        "health.kmsg": "kmsg",
        "agent.spool_dir": "spool",
        "agent.gres_conf": "gres.conf",
        "agent.socket": "agent.sock",
        "site.slurm_conf": "slurm.conf",
    }
    lines = [f"{key} = {json.dumps(str(tmp_path / name))}\n" for key, name in keys.items()]
    (tmp_path / "fairwatt.toml").write_text("".join(lines) + 'agent.node = "n1"\n')
    return {**fake.env, "FAIRWATT_CONFIG": str(tmp_path / "fairwatt.toml")}


def fairwatt(env: dict[str, str], *args: str) -> Completed:
    code = "from fairwatt.core.cli import main; main()"
    return call([sys.executable, "-c", code, *args], timeout_s=30, env=env, check=False)


def keep(tmp_path: Path, *findings: Finding, state: str = "ok", age_s: int = 0) -> None:
    t_ms = time.time_ns() // 1_000_000 - 1000 * age_s
    verdict = Verdict(t_ms=t_ms, node="n1", state=state, findings=findings, checks=CHECKS)  # type: ignore[arg-type]
    (tmp_path / "health.json").write_bytes(encode_verdict(verdict))


def test_the_table_says_what_to_do() -> None:
    verdict = Verdict(
        t_ms=NOW_MS - 5_000, node="n1", state="bad", findings=(LOST, LATE), checks=CHECKS
    )
    assert verdict_text(verdict, load_checks(), NOW_MS) == (
        "n1: bad (5 s ago)\n"
        "\n"
        "CHECK            STATE    DEVICE  VALUE  SINCE\n"
        "FWH101 gpu_lost  bad      GPU-a   lost   5 min\n"
        "    the GPU at 0000:07:00 is lost\n"
        "    the node is drained\n"
        f"    {load_checks()['gpu_lost'].remedy}\n"
        "FWH904 checker   unknown  -       -      0 s\n"
        "    no answer\n"
        "    See whether nvidia-smi hangs too; look at the kernel log. Jobs go on.\n"
        "\n"
        "1 of 3 checks are well\n"
        "FWH205 retired_pending: FWH902: retired"
    )


@pytest.mark.parametrize(
    ("span_ms", "shown"),
    [
        *((0, "0 s"), (-5, "0 s"), (119_999, "119 s"), (120_000, "2 min")),
        *((7_199_999, "119 min"), (7_200_000, "2 h"), (172_800_000, "2 d")),
    ],
)
def test_a_span_in_its_largest_unit(span_ms: int, shown: str) -> None:
    assert age(span_ms) == shown


@pytest.mark.parametrize(
    ("findings", "state", "status"),
    [((), "ok", 0), ((LOST,), "bad", 4), ((LATE,), "unknown", 5), ((), "warn", 3)],
)
def test_the_exit_status_is_the_state(env, tmp_path, findings, state: str, status: int) -> None:
    keep(tmp_path, *findings, state=state)
    done = fairwatt(env, "health")
    assert done.returncode == status
    assert done.stdout.startswith(f"n1: {state} (")
    told = json.loads(fairwatt(env, "health", "--json").stdout)
    assert (told["state"], len(told["findings"])) == (state, len(findings))


def test_no_verdict_is_one_line_and_an_old_one_is_unknown(env, tmp_path: Path) -> None:
    done = fairwatt(env, "health")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "start the agent" in done.stderr
    keep(tmp_path, age_s=3 * 3600)
    done = fairwatt(env, "health")
    assert done.returncode == 5
    assert "the verdict is 3 h old" in done.stdout


def test_one_round_on_fake_boards(env, tmp_path: Path) -> None:
    done = fairwatt(env, "health", "run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "23 of 27 checks are well" in done.stdout
    (tmp_path / "nvml.control").unlink()
    done = fairwatt(env, "health", "run")
    assert done.returncode == 4
    assert "FWH602 driver_missing" in done.stdout


def test_baseline_shows_records_and_compares(env, tmp_path: Path) -> None:
    assert "no baseline is recorded" in fairwatt(env, "health", "baseline").stdout
    assert "2 GPUs recorded" in fairwatt(env, "health", "baseline", "--write").stdout
    shown = fairwatt(env, "health", "baseline").stdout.splitlines()
    assert shown[0].startswith("as recorded")
    assert json.loads(shown[1])["limit_mw"] == 400_000
    fake = FakeNvml(tmp_path / "nvml.control")
    uuid = json.loads(shown[1])["uuid"]
    fake.set_condition(uuid, "power.limit", 300_000)
    assert "differs" in fairwatt(env, "health", "baseline").stdout
    fake.lose(uuid)
    done = fairwatt(env, "health", "baseline", "--write")
    assert done.returncode == 1
    assert uuid in done.stderr


def test_checks_and_metrics(env, tmp_path: Path) -> None:
    listed = json.loads(fairwatt(env, "health", "checks", "--json").stdout)
    assert [item["code"] for item in listed] == [spec.code for spec in load_checks().values()]
    keep(tmp_path, LOST, state="bad")
    assert (
        'fairwatt_health_state{node="n1",state="bad"} 1'
        in fairwatt(env, "health", "metrics").stdout
    )


def test_the_doctor_tells_findings(env, tmp_path: Path, monkeypatch) -> None:
    config = config_module.load(Path(env["FAIRWATT_CONFIG"]))
    (skipped,) = dict(run_checks(doctor_checks, config)).values()
    assert skipped.level == "info"
    keep(tmp_path, LOST, state="bad")
    ((name, finding),) = run_checks(doctor_checks, config)
    assert (name, finding.level) == ("health.verdict", "error")
    assert finding.problem == LOST.reason
    assert finding.remedy == load_checks()["gpu_lost"].remedy
