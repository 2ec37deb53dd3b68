# SPDX-License-Identifier: Apache-2.0
"""What stops a play before slurm.conf is touched; then the roles on Debian 12, Slurm 22.05."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ansible.admin import FAIRWATT, doctor, submit, tres_of
from tests.ansible.fake_gpus import fake_nvml
from tests.ansible.playbooks import Outcome, Playbooks
from tests.ansible.sites import BootedSite
from tests.lab.waiting import await_value

pytestmark = pytest.mark.ansible

SLURM_CONF = "/etc/slurm/slurm.conf"
NOBODY = "http://10.77.0.99:8181"


@pytest.fixture(scope="module")
def playbooks(small: BootedSite, tmp_path_factory) -> Playbooks:
    return Playbooks(small, tmp_path_factory.mktemp("small"))


@pytest.fixture
def untouched(small: BootedSite) -> Iterator[None]:
    """slurm.conf must be the same file with the same bytes and times after the test."""
    before = state(small)
    yield
    assert state(small) == before


def state(small: BootedSite) -> tuple[str, str]:
    node = small.controller
    return node.out("cat", SLURM_CONF), node.out("stat", "--format=%i %Y %Z %a %U", SLURM_CONF)


# -- these run before the first converge ---------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "choices"),
    [
        ("fairwatt_controller_fail_mode", "ajar", ["open", "closed"]),
        ("fairwatt_dashboard_identity", "guess", ["proxy", "demo"]),
    ],
)
def test_a_wrong_value_names_itself_and_the_choices(
    playbooks, untouched, variable, value, choices
):
    outcome = playbooks.run("site", extra={variable: value})
    assert outcome.status != 0
    for word in (variable, value, *choices):
        assert word in outcome.output, outcome.why()


def test_a_controller_whose_lua_cannot_load_the_hook_stops_the_play(small, playbooks, untouched):
    node = small.controller
    module = "/usr/share/lua/5.1/socket.lua"
    node.out("mv", module, f"{module}.away")
    try:
        outcome = playbooks.run("site")
    finally:
        node.out("mv", f"{module}.away", module)
    assert outcome.status != 0
    assert "no module socket" in outcome.output, outcome.why()


def test_an_unreachable_collector_stops_the_play(playbooks, untouched):
    outcome = playbooks.run("site", extra={"fairwatt_node_collector_url": NOBODY})
    assert outcome.status != 0
    assert NOBODY in outcome.output, outcome.why()


def test_by_default_slurm_conf_is_the_admins_own(small, playbooks, untouched):
    outcome = playbooks.run("site", extra={"fairwatt_controller_manage_slurm_conf": False})
    assert outcome.status == 0, outcome.why()
    for line in ("Include fairwatt.conf", "JobSubmitPlugins=lua"):
        assert line in outcome.output
    check = playbooks.run("check", extra={"fairwatt_controller_manage_slurm_conf": False})
    assert check.status != 0
    assert "Include fairwatt.conf" in check.output, check.why()


# -- converge ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def first_run(small: BootedSite, playbooks: Playbooks) -> Outcome:
    outcome = playbooks.run("site")
    assert outcome.status == 0, outcome.why()
    return outcome


def test_second_run_changes_nothing(playbooks, first_run):
    second = playbooks.run("site")
    assert (second.status, second.changed) == (0, 0), second.why()


def test_a_job_is_rewritten_and_doctor_is_content(small, first_run):
    done = submit(small, "--gres=gpu:20gb:1")
    assert done.job_id is not None, done.said
    assert tres_of(small, done.job_id) == "gres:gpu:a100_3g.20gb:1"
    said = doctor(small.controller)
    assert said.ok, said.text


def test_a_lost_gpu_drains_the_node_from_within_the_agents_closed_unit(small, first_run):
    """scontrol, munge and the memory of the checks work inside the sandbox."""
    node = small.controller
    site_file = node.path("/etc/fairwatt/health.toml")
    before = site_file.read_text()
    (uuid, *_) = [gpu.uuid for gpu in small.plan.nodes[0].gpus]
    fake = fake_nvml(node)

    def reason() -> str:
        return node.out("sinfo", "--noheader", "--Node", "-o", "%E").splitlines()[0].strip()

    def said() -> str:
        return f"{node.journal('fairwatt-agent')}\n{node.run([FAIRWATT, 'health']).stdout}"

    try:
        site_file.write_text("[defaults]\nperiod_s = 0.5\n")
        fake.lose(uuid)
        await_value(
            lambda: reason().startswith(f"fairwatt FWH101 {uuid}: "),
            what="the drain",
            timeout_s=60,
            detail=said,
        )
        fake.heal(uuid)
        await_value(lambda: reason() == "none", what="no drain", timeout_s=60, detail=said)
    finally:
        fake.heal(uuid)
        site_file.write_text(before)
