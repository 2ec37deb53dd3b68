# SPDX-License-Identifier: Apache-2.0
"""The collection's life on a campus of four hosts: check, converge, use, break, heal, uninstall.

Each step is a fixture, so that any test can run alone; what a later step destroys comes last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.ansible.admin import STORE, Submitted, doctor, stored, submit, tres_of
from tests.ansible.booted import Node
from tests.ansible.fake_gpus import fake_nvml
from tests.ansible.playbooks import Outcome, Playbooks
from tests.ansible.sites import BootedSite
from tests.ansible.slurm_site import SITE_REFUSAL, USER
from tests.ansible.web import login, proxy, visit
from tests.lab.demo import idle_mw_of
from tests.lab.demo_check import check_energy
from tests.lab.waiting import await_value

pytestmark = pytest.mark.ansible

SLURM_CONF = "/etc/slurm/slurm.conf"
WATTS, SECONDS = 60, 4
UNITS = {
    "ctl": ["fairwatt-policyd", "fairwatt-updater"],
    "acct": ["fairwatt-collector", "fairwatt-dashboard"],
    "gpu01": ["fairwatt-agent"],
    "mig01": ["fairwatt-agent"],
}


# -- steps ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def playbooks(campus: BootedSite, tmp_path_factory) -> Playbooks:
    return Playbooks(campus, tmp_path_factory.mktemp("campus"))


@pytest.fixture(scope="module")
def fresh_check(campus: BootedSite, playbooks: Playbooks) -> Outcome:
    return playbooks.run("site", "--check")


@pytest.fixture(scope="module")
def slurm_conf_before(campus: BootedSite) -> str:
    """The site's slurm.conf, the same on all its hosts."""
    return campus.controller.out("cat", SLURM_CONF)


@pytest.fixture(scope="module")
def first_run(
    campus: BootedSite, playbooks: Playbooks, fresh_check: Outcome, slurm_conf_before: str
) -> Outcome:
    outcome = playbooks.run("site")
    assert outcome.status == 0, outcome.why()
    return outcome


@pytest.fixture(scope="module")
def job(campus: BootedSite, first_run: Outcome) -> Submitted:
    """A plain user's job for "a GPU of 20 GB" that uses it for a while."""
    return submit(campus, "--gres=gpu:20gb:1", run=f"/opt/lab/use-gpu {WATTS} {SECONDS}")


# -- check, converge, again ---------------------------------------------------------------------


def test_check_on_fresh_hosts_passes_and_changes_nothing(campus, fresh_check):
    assert fresh_check.status == 0, fresh_check.why()
    assert fresh_check.changed > 0
    for node in campus.lab.nodes.values():
        assert node.run(["test", "-e", "/opt/fairwatt"]).returncode == 1
        assert node.run(["test", "-e", "/etc/fairwatt"]).returncode == 1


def test_converge_starts_every_unit(campus, first_run):
    assert {host for host, counts in first_run.recap.items() if counts["changed"]} == set(UNITS)
    for host, units in UNITS.items():
        for unit in units:
            state = campus.lab[host].run(["systemctl", "is-active", unit]).stdout
            assert state == "active\n", campus.lab[host].journal(unit)


def test_second_run_changes_nothing(playbooks, first_run):
    second = playbooks.run("site")
    assert second.status == 0, second.why()
    assert second.changed == 0, second.why()


def test_check_after_converge_changes_nothing(playbooks, first_run):
    dry = playbooks.run("site", "--check")
    assert dry.status == 0, dry.why()
    assert dry.changed == 0, dry.why()


def test_check_playbook_is_content(playbooks, first_run):
    check = playbooks.run("check")
    assert (check.status, check.changed) == (0, 0), check.why()


def test_slurm_conf_got_one_include_and_kept_the_rest(campus, slurm_conf_before, first_run):
    before = slurm_conf_before.splitlines()
    for node in campus.lab.nodes.values():
        after = node.out("cat", SLURM_CONF).splitlines()
        added = [line for line in after if line not in before]
        assert [line for line in added if not line.startswith("#")] == ["Include fairwatt.conf"]
        assert [line for line in before if line not in after] == []


@pytest.mark.parametrize("host", list(UNITS))
def test_doctor_is_content_on_each_host(campus, job, host):
    said = await_value(
        lambda: doctor(campus.lab[host]),
        what="doctor",
        timeout_s=10,
    )
    assert said.ok, said.text


# -- use ----------------------------------------------------------------------------------------


def test_a_plain_users_job_is_rewritten(campus, job):
    assert job.job_id is not None, job.said
    assert re.search(r"fairwatt FW101.*gpu:20gb:1 -> .*a100_3g\.20gb", job.said), job.said
    assert tres_of(campus, job.job_id) == "gres/gpu:a100_3g.20gb:1"


def test_an_alias_in_capitals_is_rewritten(campus, first_run):
    done = submit(campus, "--gres=gpu:A100_3G.20GB:1")
    assert done.job_id is not None, done.said
    assert tres_of(campus, done.job_id) == "gres/gpu:a100_3g.20gb:1"


def test_the_updater_gives_a_job_that_waits_the_next_gpu(campus, first_run):
    """As SlurmUser, whom the hook judges, and in a closed unit."""

    def queued(need: str, run: str) -> str:
        argv = ["sbatch", "--parsable", f"--gres={need}", f"--wrap={run}"]
        return campus.controller.run(argv, user=USER).stdout.strip()

    taken = queued("gpu:a100_3g.20gb:2", "sleep 60")
    waits = queued("gpu:20gb:1", "true")
    await_value(
        lambda: tres_of(campus, int(waits)) == "gres/gpu:a100:1",
        what="the job asks for the next GPU",
        timeout_s=30,
        detail=lambda: campus.controller.journal("fairwatt-updater"),
        interval_s=0.5,
    )
    campus.controller.out("scancel", taken, waits)
    told = campus.controller.journal("fairwatt-updater")
    assert told.count(f"job {waits}: gpu:a100_3g.20gb:1 -> gpu:a100:1") == 1


def test_the_sites_own_rules_still_hold(campus, job):
    refused = submit(campus, "--job-name=forbidden", "--gres=gpu:20gb:1")
    assert refused.job_id is None
    assert SITE_REFUSAL in refused.said
    seen = campus.lab["mig01"].out("cat", "/var/log/site-prolog.log").split()
    assert str(job.job_id) in seen


def test_its_energy_is_in_the_store_as_the_device_says(campus, job, tmp_path):
    assert job.job_id is not None
    await_value(
        lambda: energy_mj(campus, tmp_path, job.job_id),
        what="the job's energy is in the store",
        timeout_s=60,
        detail=lambda: campus.accounting.journal("fairwatt-collector"),
        interval_s=1,
    )
    fakes = {node.name: fake_nvml(node) for node in campus.gpu_nodes}
    idle = idle_mw_of(campus.plan.nodes)
    with closing(stored(campus, tmp_path)) as db:
        checked = check_energy(db, fakes, idle, {job.job_id: "job"})
    assert checked.faults == []
    assert energy_mj(campus, tmp_path, job.job_id) >= WATTS * SECONDS * 1000 * 0.9


def energy_mj(campus: BootedSite, folder: Path, job_id: int) -> int | None:
    """The energy of a job's only run as the store has it; None as long as it has none."""
    with closing(stored(campus, folder)) as db:
        rows = db.execute(
            "SELECT idle_mj + active_mj FROM run JOIN run_energy USING (run_id)"
            " WHERE job_id = ? AND end_ts IS NOT NULL"
            # The truth is worked out from all jobs of the board, so all must have ended.
            " AND NOT EXISTS (SELECT 1 FROM node_run WHERE end_ms IS NULL)",
            (job_id,),
        ).fetchall()
    return rows[0][0] if len(rows) == 1 else None


def test_the_decision_is_in_the_store_delivered_by_slurms_own_user(campus, job, tmp_path):
    def arrived() -> list[tuple[str, str, int]]:
        with closing(stored(campus, tmp_path)) as db:
            sql = "SELECT given, user, took_us FROM decision WHERE asked = 'gpu:20gb:1'"
            return [tuple(row) for row in db.execute(sql)]

    rows = await_value(
        arrived,
        what="the decision is in the store",
        timeout_s=60,
        detail=lambda: campus.controller.journal("fairwatt-policyd"),
        interval_s=1,
    )
    given, user, took_us = rows[0]
    assert (given, user) == ("gpu:a100_3g.20gb:1", USER)
    assert took_us > 0


def test_the_user_sees_it_through_the_proxy(campus, job):
    desk = campus.lab["gpu01"]
    with proxy(campus.lab, campus.accounting) as url:
        page = visit(desk, f"{url}/jobs/campus/{job.job_id}", login(USER))
        assert page.status == 200, page.text
        assert "gpu:20gb:1" in page.text
        assert visit(desk, f"{url}/me", login(USER)).status == 200
        other = visit(desk, f"{url}/jobs/campus/{job.job_id}", login("mallory"))
        assert other.status == 404
        assert visit(desk, f"{url}/me").status == 401  # the proxy's own answer


@pytest.mark.parametrize("host", ["gpu01", "acct"])
def test_without_the_proxy_nobody_is_anybody(campus, first_run, host):
    url = f"http://{campus.accounting.address}:8080/me"
    page = visit(campus.lab[host], url, {"X-Remote-User": USER})
    assert page.status == 403, page.text


# -- break and heal ------------------------------------------------------------------------------


@pytest.fixture
def broken() -> Iterator[list[Callable[[], object]]]:
    """Ways back to a healthy site, taken after the test whatever happens."""
    ways: list[Callable[[], object]] = []
    yield ways
    for way in reversed(ways):
        way()


def test_doctor_names_a_hook_file_that_is_gone(campus, first_run, broken):
    node = campus.lab["ctl"]
    hook = "/etc/slurm/job_submit.lua"
    broken.append(lambda: node.out("mv", f"{hook}.away", hook))
    node.out("mv", hook, f"{hook}.away")
    assert_names(node, hook)


def test_doctor_names_a_node_hook_that_is_gone(campus, first_run, broken):
    node = campus.lab["gpu01"]
    hook = "/etc/fairwatt/hooks/prolog"
    broken.append(lambda: node.out("mv", f"{hook}.away", hook))
    node.out("mv", hook, f"{hook}.away")
    assert_names(node, hook)


def test_doctor_and_check_name_an_agent_that_is_stopped(campus, playbooks, first_run, broken):
    node = campus.lab["gpu01"]
    broken.append(lambda: node.out("systemctl", "start", "fairwatt-agent"))
    node.out("systemctl", "stop", "fairwatt-agent")
    assert_names(node, "agent does not answer")
    check = playbooks.run("check", "--limit=gpu01")
    assert check.status != 0
    assert "agent does not answer" in check.output, check.why()


@pytest.mark.parametrize("host", ["gpu01", "acct"])
def test_doctor_names_a_collector_that_is_closed(campus, first_run, broken, host):
    node = campus.accounting
    broken.append(lambda: node.out("systemctl", "start", "fairwatt-collector"))
    node.out("systemctl", "stop", "fairwatt-collector")
    assert_names(campus.lab[host], "8181")


def test_doctor_names_accounting_without_gpus(campus, first_run, broken):
    node = campus.controller

    def without(tres: str) -> None:
        node.out("sed", "-i", f"s|^AccountingStorageTRES=.*|AccountingStorageTRES={tres}|", conf)
        node.out("systemctl", "restart", "slurmctld")

    conf = SLURM_CONF
    shown = node.out("grep", "^AccountingStorageTRES=", conf).partition("=")[2]
    broken.append(lambda: without(shown))
    without("license/none")
    assert_names(node, "AccountingStorageTRES")


def assert_names(node: Node, fault: str) -> None:
    """Doctor finds an error on the node and its text names the fault."""
    said = doctor(node)
    assert not said.ok
    assert any(fault in line for line in said.text.splitlines()), said.text


def test_doctor_is_content_when_all_is_healed(campus, first_run):
    for node in campus.lab.nodes.values():
        said = doctor(node)
        assert said.ok, said.text


# -- uninstall -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def removed(campus: BootedSite, playbooks: Playbooks, job: Submitted) -> Outcome:
    return playbooks.run("uninstall")


def test_uninstall_leaves_slurm_as_it_was(campus, slurm_conf_before, removed):
    assert removed.status == 0, removed.why()
    for node in campus.lab.nodes.values():
        assert node.out("cat", SLURM_CONF) == slurm_conf_before
    done = submit(campus, "--gres=gpu:a100_3g.20gb:1")
    assert done.job_id is not None, done.said
    assert "fairwatt" not in done.said
    assert submit(campus, "--gres=gpu:20gb:1").job_id is None  # nobody rewrites any more
    assert SITE_REFUSAL in submit(campus, "--job-name=forbidden").said
    assert str(done.job_id) in campus.lab["mig01"].out("cat", "/var/log/site-prolog.log").split()


def test_uninstall_leaves_the_database_and_nothing_else(campus, removed):
    campus.accounting.out("test", "-s", STORE)
    for node in campus.lab.nodes.values():
        assert "fairwatt-" not in node.out(
            "systemctl", "list-units", "--plain", "--all", "fairwatt-*"
        )
        for place in ("/opt/fairwatt", "/etc/fairwatt", "/run/fairwatt"):
            assert node.run(["test", "-e", place]).returncode == 1, f"{node.name}:{place}"


def test_uninstall_again_changes_nothing(playbooks, removed):
    again = playbooks.run("uninstall", "--limit=ctl,gpu01")
    assert (again.status, again.changed) == (0, 0), again.why()
