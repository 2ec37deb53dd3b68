# SPDX-License-Identifier: Apache-2.0
"""The submit hook in real controllers while policyd, the hook's file or the site's script fails.

On each release and in both fail modes: the job is as typed or refused, the user gets one line,
the log one counted line, and the next job finds all in order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.faulty_policyd import FAULTS, GIVEN, LATE_S, SAID, FaultyPolicyd
from tests.lab.cluster import OneHostCluster
from tests.lab.hook_lab import ASKED, DEADLINE_S, NOT_APPLIED, Lab, alike
from tests.lab.hooks import load_anew
from tests.lab.paths import REPOSITORY
from tests.lab.system import HOST_RELEASE

pytestmark = pytest.mark.lab

SITE_FAILED = "fairwatt: the site's own submit script failed"
ANSWERED = [name for name in FAULTS if name not in ("none", "many edits", "slow", "twice")]

SABOTAGE = """\
function slurm_job_submit(job_desc)
  local meta = getmetatable(job_desc)
  local set = meta.__newindex
  meta.__newindex = function(t, name, value)
    if name == "{field}" then error("sabotage at " .. name) end
    return set(t, name, value)
  end
  return 0
end
"""


@pytest.fixture(scope="module")
def running(release: str, lab_root: Path) -> Iterator[Lab]:
    nothing = REPOSITORY / "tests" / "lab" / "recorder"
    root = lab_root / f"f{release}"
    with (
        OneHostCluster(root, node_hooks=nothing, release=release) as slurm,
        FaultyPolicyd(slurm.paths.policyd_socket) as far,
    ):
        yield Lab(slurm, far)


@pytest.fixture(params=["open", "closed"])
def lab(request: pytest.FixtureRequest, running: Lab) -> Iterator[Lab]:
    """The cluster in one mode; after the test all is well again."""
    if running.mode != request.param:
        running.settings(request.param)
    yield running
    running.far.start()
    running.far.fault("none")
    running.check_recovered()


class TestPolicyd:
    def failing(self, lab: Lab) -> None:
        before = lab.counted()
        lab.submit().check(lab)
        assert lab.counted() == before + 1

    def test_absent(self, lab):
        lab.far.kill()
        self.failing(lab)

    def test_frozen(self, lab):
        lab.submit()
        lab.far.freeze()
        try:
            self.failing(lab)
        finally:
            lab.far.thaw()

    @pytest.mark.parametrize("fault", ANSWERED)
    def test_a_wrong_answer(self, lab, fault):
        lab.far.fault(fault)
        self.failing(lab)

    def test_a_late_answer_is_nobodys(self, lab):
        lab.far.fault("slow")
        self.failing(lab)
        lab.far.fault("none")
        lab.check_recovered()
        time.sleep(LATE_S - DEADLINE_S)  # it is written by now, to a connection that is gone
        lab.check_recovered()

    def test_a_second_answer_is_not_taken_for_the_next_jobs(self, lab):
        lab.submit()
        lab.far.fault("twice")
        assert SAID in lab.submit().done.stderr
        lab.far.fault("none")
        before = lab.counted()
        after = lab.submit()
        after.check(lab)
        assert "answer to another request" in after.done.stderr
        assert lab.counted() == before + 1

    def test_killed_and_started_again_costs_no_job_its_policy(self, lab):
        lab.submit()
        lab.far.kill()
        lab.far.start()
        lab.check_recovered()

    def test_jobs_without_gpus_do_not_notice(self, lab):
        lab.far.kill()
        done = lab.slurm.sbatch(["--begin=now+1hour"], "true")
        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.parametrize("program", ["srun", "salloc"])
    def test_interactive(self, lab, program):
        lab.far.fault("garbage")
        before = lab.counted()
        done = lab.slurm.run([program, f"--gres={ASKED}", "true"], user="ada")
        assert done.stderr.count(NOT_APPLIED) == 1
        assert (done.returncode == 0) == (lab.mode == "open")
        assert lab.counted() == before + 1

    def test_a_change_of_a_pending_job(self, lab):
        job = lab.submit().job
        lab.far.fault("garbage")
        change = ["scontrol", "update", f"JobId={job['JobId']}", "TimeLimit=5"]
        done = lab.slurm.run(change, user="ada")
        told = NOT_APPLIED in done.stderr
        assert told == (lab.slurm.release >= "23.02")  # earlier ones keep it from the user
        if lab.mode == "open":
            assert done.returncode == 0
            assert lab.show(int(job["JobId"]))["TimeLimit"] == "00:05:00"
        else:
            assert done.returncode != 0
            assert lab.show(int(job["JobId"]))["TimeLimit"] == job["TimeLimit"]


class TestHook:
    @pytest.mark.parametrize("field", ["admin_comment", "min_mem_per_cpu"])
    def test_a_write_that_fails_takes_the_others_back(self, lab, field):
        mode, plain = lab.mode, lab.plain()
        lab.settings(mode, site_script=lab.site(SABOTAGE.replace("{field}", field)))
        lab.far.fault("many edits")
        before = lab.counted()
        done = lab.submit()
        done.check(lab)
        assert mode == "closed" or alike(done.job) == alike(plain)
        assert lab.counted() == before + 1
        assert f"sabotage at {field}" in lab.log()
        lab.settings(mode)

    def test_edits_of_every_kind_arrive(self, lab):
        lab.far.fault("many edits")
        job = lab.submit("--constraint=h100").job
        assert (job["TimeLimit"], job["NumTasks"]) == ("01:00:00", "3")
        assert (job["MinMemoryCPU"], job["OverSubscribe"]) == ("500M", "NO")
        assert (job["AdminComment"], job["Features"]) == ("judged", "h100")

    def test_loaded_anew_it_connects_anew(self, lab):
        lab.check_recovered()
        before = lab.far.fault("none")
        lab.check_recovered()
        assert lab.far.fault("none") == before
        load_anew(lab.slurm.paths)
        lab.check_recovered()
        assert lab.far.fault("none") == before + 1


class TestSiteScript:
    @pytest.mark.parametrize("order", ["before", "after"])
    def test_an_error_in_it_is_the_fail_mode(self, lab, order):
        mode = lab.mode
        text = "function slurm_job_submit() error('site bug') end"
        lab.settings(mode, site_script=lab.site(text), site_order=order)
        before = lab.counted(SITE_FAILED)
        done = lab.submit()
        assert done.done.stderr.count(SITE_FAILED) == 1
        assert lab.counted(SITE_FAILED) == before + 1
        assert "site bug" in lab.log()
        # What is sound goes on: ours has judged the job.
        given = None if mode == "closed" else lab.spelled(GIVEN)
        assert done.job.get("TresPerNode") == given
        lab.settings(mode)


class TestWire:
    """What reaches policyd, as this release's own clients send it."""

    def asked(self, lab: Lab, *args: str) -> dict[str, object]:
        lab.submit(*args)
        return lab.far.asked()["job"]

    def test_the_options_of_a_job(self, one):
        options = (
            "-t60",
            "--mem=2G",
            "--cpus-per-gpu=2",
            "--exclusive",
            "--array=0-1",
            "-qnormal",
        )
        job = self.asked(one, *options)
        begin_s = job.pop("begin_time")
        assert abs(begin_s - time.time() - 3600) < 60
        assert job == {
            "tres_per_node": one.asked,
            "time_limit": 60,
            "min_mem_per_node": 2048,
            "cpus_per_tres": one.spelled("gpu:2"),
            "shared": 0,
            "array_inx": "0-1",
            "qos": "normal",
            "std_in": "/dev/null",
            "default_account": "qcd",
            "user_id": job["user_id"],
            "min_cpus": job["min_cpus"],
            "SLURM_CPUS_PER_GPU": "2",
        }
        assert self.asked(one, "--mem-per-cpu=500")["min_mem_per_cpu"] == 500

    def test_a_job_from_inside_a_job_names_what_it_inherits(self, one):
        inner = f"sbatch --gres={ASKED} --begin=now+1hour --wrap=true"
        job_id = one.slurm.sbatch(["--mem=700", "-c2"], inner).job_id
        assert one.slurm.wait_job(job_id) == ["COMPLETED"]
        names = one.far.asked()["job"]["inherited"].split(",")
        assert names[0] == "SLURM_JOB_ID"
        assert {"SLURM_MEM_PER_NODE", "SLURM_CPUS_PER_TASK"} <= set(names)
        assert "inherited" not in self.asked(one)

    def test_components_of_a_hetjob_tell_their_place(self, one):
        later = "--begin=now+1hour"
        parts = [f"--gres={ASKED}", later, ":", f"--gres={ASKED}", later, "--wrap=true"]
        assert one.slurm.run(["sbatch", *parts], user="ada").stderr.count(SAID) == 2
        job = one.far.asked()["job"]
        assert (job["het_offset"], "has_script" in job) == (1, False)

    def test_of_a_job_that_is_there_the_record(self, one):
        job = one.submit("-t60", "--mem=2G").job
        change = ["scontrol", "update", f"JobId={job['JobId']}", "TimeLimit=5"]
        assert one.slurm.run(change, user="ada").returncode == 0
        query = one.far.asked()
        assert (query["job"]["time_limit"], query["record"]["time_limit"]) == (5, 60)
        assert query["record"]["min_mem_per_node"] == 2048
        assert query["record"]["admin_comment"] == "judged"
        assert "het_offset" not in query["record"]

    def test_a_stranger_changes_nothing_and_learns_nothing(self, one):
        """Up to 22.05 Slurm calls the hook before it asks whose job it is."""
        job = one.submit("-t60").job
        change = ["scontrol", "update", f"JobId={job['JobId']}", "TimeLimit=5"]
        done = one.slurm.run(change, user="ben")
        assert done.returncode != 0
        assert "fairwatt" not in done.stderr
        assert one.show(int(job["JobId"]))["TimeLimit"] == "01:00:00"


@pytest.fixture
def one(running: Lab) -> Lab:
    """The cluster where the mode does not matter."""
    running.settings("open")
    running.check_recovered()
    return running


class TestFile:
    """slurmctld loads job_submit.lua when its time is later than that of the one it has."""

    def install(self, lab: Lab, text: str, *, age_s: float) -> None:
        script = lab.slurm.paths.etc / "job_submit.lua"
        before = script.stat().st_mtime if script.exists() else time.time() + 100
        script.write_text(text)
        os.utime(script, (before - age_s, before - age_s))

    @pytest.fixture
    def script(self, one: Lab) -> Iterator[Path]:
        path = one.slurm.paths.etc / "job_submit.lua"
        good, times = path.read_text(), path.stat().st_mtime
        yield path
        path.write_text(good)
        os.utime(path, (times + 10, times + 10))
        one.check_recovered()

    def test_deleted_the_one_in_use_goes_on(self, one, script):
        script.unlink()
        one.check_recovered()

    def test_broken_the_last_one_goes_on(self, one, script):
        self.install(one, "this is no Lua", age_s=-5)
        one.check_recovered()
        assert "job_submit.lua" in one.log()

    def test_an_older_one_is_not_loaded_until_it_is_touched(self, one, script):
        """A package or rsync keeps the file's time; the Ansible role touches it last."""
        refusing = "function slurm_job_submit() return 2072 end\nslurm_job_modify = "
        self.install(one, refusing + "slurm_job_submit\nreturn 0\n", age_s=60)
        one.check_recovered()
        os.utime(script, (script.stat().st_mtime + 65, script.stat().st_mtime + 65))
        assert one.submit().job == {}


@pytest.mark.parametrize("release", [HOST_RELEASE], indirect=True)
class TestSiteOrder:
    """One release is enough: the order is our hook's doing, not Slurm's."""

    SEEN = "function slurm_job_submit(j) j.comment = j.tres_per_node return 0 end"

    @pytest.fixture
    def here(self, one: Lab) -> Iterator[Lab]:
        yield one
        one.settings("open")

    @pytest.mark.parametrize(("order", "seen"), [("before", ASKED), ("after", GIVEN)])
    def test_the_later_sees_what_the_earlier_made(self, here, order, seen):
        here.settings("open", site_script=here.site(self.SEEN), site_order=order)
        done = here.submit()
        assert done.job["Comment"] == here.spelled(seen)
        assert done.job["TresPerNode"] == here.spelled(GIVEN)

    @pytest.mark.parametrize("order", ["before", "after"])
    def test_its_refusal_refuses_with_its_own_words(self, here, order):
        text = (
            "function slurm_job_submit() slurm.log_user('%s', 'site says no') return 2015 end\n"
            "function slurm_job_modify() return slurm.ERROR end"
        )
        job = here.submit().job
        here.settings("open", site_script=here.site(text), site_order=order)
        done = here.submit()
        assert done.job == {}
        assert "site says no" in done.done.stderr
        assert (SAID in done.done.stderr) == (order == "after")
        change = ["scontrol", "update", f"JobId={job['JobId']}", "TimeLimit=5"]
        assert here.slurm.run(change, user="ada").returncode != 0
