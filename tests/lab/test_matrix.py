# SPDX-License-Identifier: Apache-2.0
"""One intent, one decision: every form, spelling, kind and entry point on three releases of Slurm.

`make test-matrix` runs these alone and shows a summary; with RECORD=1 it also writes
tests/data/submit-matrix.json and docs/submit-matrix.md from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.matrix import results
from tests.lab.matrix.cases import ENTRIES, Case, Places, shell
from tests.lab.matrix.expect import fault, why
from tests.lab.matrix.intents import find_intent
from tests.lab.matrix.run import Answer, Results, has_scrontab, install, records, run_matrix, say
from tests.lab.matrix.updates import UPDATES, command, outcome_of
from tests.lab.paths import REPOSITORY
from tests.lab.system import HOST_RELEASE

pytestmark = pytest.mark.lab

NO_NODE_HOOKS = REPOSITORY / "tests" / "lab" / "recorder"
RECORD_VARIABLE = "FAIRWATT_RECORD_MATRIX"
SUMMARIES = REPOSITORY / "build" / "submit-matrix"
WHERE = "echo node=$SLURMD_NODENAME"


@dataclass(frozen=True)
class Matrix:
    """A release's cluster with all cases submitted: outcomes of cases and of updates."""

    lab: OneHostCluster
    places: Places
    cases: Results
    updates: dict[str, str]
    took_s: float

    @property
    def outcomes(self) -> dict[str, str]:
        """All of them by key, as they are recorded."""
        return {case.key: text for case, text in self.cases.outcome.items()} | self.updates


@pytest.fixture(scope="module")
def matrix(release: str, lab_root: Path) -> Iterator[Matrix]:
    began = time.monotonic()
    with OneHostCluster(
        lab_root / f"m{release}",
        release=release,
        node_hooks=NO_NODE_HOOKS,
        slurm={"ScronParameters": "enable"},
    ) as lab:
        lab.start_policyd()
        places = install(lab)
        cases = run_matrix(lab, places)
        updates = run_updates(lab)
        made = Matrix(lab, places, cases, updates, time.monotonic() - began)
        if os.environ.get(RECORD_VARIABLE):
            results.merged(release, made.outcomes)
        summarise(made)
        yield made


def summarise(matrix: Matrix) -> None:
    """One line for `make test-matrix`."""
    release, outcomes = matrix.lab.release, matrix.cases.outcome
    wrong = sum(fault(case, outcome, release) is not None for case, outcome in outcomes.items())
    refused = sum(" in " not in outcome for outcome in outcomes.values())
    SUMMARIES.mkdir(parents=True, exist_ok=True)
    (SUMMARIES / release).write_text(
        f"Slurm {release}: {len(outcomes)} submissions ({refused} refused, as they must be),"
        f" {len(matrix.updates)} updates, {wrong} wrong;"
        f" {matrix.took_s:.1f} s, of these {matrix.lab.start_s:.1f} s to start\n"
    )


def run_updates(lab: OneHostCluster) -> dict[str, str]:
    """Make a job for each update, change it as its owner, and read the record."""
    log = str(lab.paths.log / "slurmctld.log")
    tags = {f"update-{number}": update for number, update in enumerate(UPDATES)}
    commands = {tag: command(update, tag, log) for tag, update in tags.items()}
    answers = say(lab, commands, shells=1)
    found = records(lab)
    return {
        update.key: outcome_of(answers[tag], found.get(tag, [])) for tag, update in tags.items()
    }


class TestDecisions:
    def test_every_case_has_an_outcome(self, matrix):
        missing = {case.entry for case in matrix.cases.outcome} ^ set(ENTRIES)
        assert missing == (set() if has_scrontab(matrix.lab) else {"scrontab"})
        assert len(matrix.cases.outcome) > 1500

    def test_one_intent_one_decision(self, matrix):
        told = [
            fault(case, outcome, matrix.lab.release)
            for case, outcome in matrix.cases.outcome.items()
        ]
        assert [each for each in told if each] == []

    def test_the_user_is_told_what_was_changed(self, matrix):
        """scrontab answers for all its lines together."""
        silent = [
            f"{case.key}: {told}"
            for case, told in matrix.cases.told.items()
            if is_decided(matrix, case)
            and case.entry != "scrontab"
            and not set(case.intent.told) <= set(told)
        ]
        assert silent == []

    def test_an_update_is_judged_on_the_merged_job(self, matrix):
        release = matrix.lab.release
        wrong = {
            update.key: (matrix.updates[update.key], update.expected(release))
            for update in UPDATES
            if matrix.updates[update.key] != update.expected(release)
        }
        assert wrong == {}

    def test_the_record_and_so_the_page_are_of_today(self, matrix):
        recorded = results.of_release(matrix.lab.release)
        assert matrix.outcomes == recorded, "run: make test-matrix RECORD=1"


def is_decided(matrix: Matrix, case: Case) -> bool:
    """Whether the case came through to a job as the policy decided it."""
    outcome = matrix.cases.outcome[case]
    lost = "no GPU" in outcome or why(case, outcome, matrix.lab.release)
    return not case.intent.refused and " in " in outcome and not lost


class TestTestOnly:
    def test_it_leaves_no_job_and_no_row(self, matrix):
        ids = matrix.cases.test_ids
        assert len(ids) > 90
        shown = matrix.lab.run(["scontrol", "--oneliner", "show", "jobs"]).stdout
        known = {line.split()[0].removeprefix("JobId=") for line in shown.splitlines()}
        assert set(ids) & known == set()
        rows = matrix.lab.sacct_rows("--allusers", fields="JobIDRaw")
        assert set(ids) & {row["JobIDRaw"] for row in rows} == set()

    def test_it_never_names_a_node_that_the_job_must_not_have(self, matrix):
        for case, nodes in matrix.cases.test_nodes.items():
            barred = (case.intent.without or "").split(",")
            assert nodes not in barred, case.key


@pytest.fixture(scope="module")
def emptied(matrix: Matrix) -> Matrix:
    """The same cluster without its thousand waiting jobs."""
    for user in ("ada", "ben"):
        matrix.lab.run(["scancel", f"--user={user}"], check=True)
    return matrix


@pytest.mark.usefixtures("emptied")
class TestRunning:
    """The same hook, but jobs that do start: one for each entry point."""

    def output(self, matrix, job_id):
        assert set(matrix.lab.wait_job(job_id)) == {"COMPLETED"}
        files = sorted((matrix.lab.paths.home / "ada").glob(f"slurm-{job_id}*.out"))
        return [file.read_text() for file in files]

    def test_sbatch(self, matrix):
        done = matrix.lab.sbatch(["--gpus=20gb:1"], f"srun sh -c '{WHERE}'")
        assert self.output(matrix, done.job_id) == ["node=mig01\n"]

    def test_array(self, matrix):
        done = matrix.lab.sbatch(["-p", "all", "--gpus=1", "--array=0-2"], WHERE)
        said = self.output(matrix, done.job_id)
        assert len(said) == 3
        assert "node=mig01\n" not in said

    def test_hetjob(self, matrix):
        parts = ["--gres=gpu:A100:1", ":", "--gres=gpu:20gb:1"]
        done = matrix.lab.sbatch(parts, f"srun --het-group=1 sh -c '{WHERE}'")
        assert "node=mig01\n" in self.output(matrix, done.job_id)

    @pytest.mark.parametrize("program", ["salloc", "srun"])
    def test_interactive(self, matrix, program):
        conf = matrix.places.client_conf if program == "srun" else matrix.lab.paths.slurm_conf
        inner = ["srun"] if program == "salloc" else []
        argv = [program, "--gres=gpu:20gb:1", *inner, "sh", "-c", WHERE]
        done = matrix.lab.run(["env", f"SLURM_CONF={conf}", *argv], user="ada")
        assert (done.returncode, done.stdout) == (0, "node=mig01\n"), done.stderr

    @pytest.mark.parametrize(
        ("options", "nodes"),
        [
            (["--gpus=a100|h100"], {"gpu01", "gpu02", "h01"}),
            (["--gres=gpu:any"], {"gpu01", "gpu02", "h01"}),
            (["--gpus-per-node=mig-10gb:1"], {"mig01"}),
            (["--gpus-per-socket=20gb:1", "--sockets-per-node=1"], {"mig01"}),
            (["--gpus-per-task=hopper:1", "-n1"], {"h01"}),
        ],
        ids=lambda value: "" if isinstance(value, set) else value[0],
    )
    def test_srun_by_need_with_the_client_filter(self, matrix, options, nodes):
        """Its step asks for what the job was given."""
        conf = f"SLURM_CONF={matrix.places.client_conf}"
        done = matrix.lab.run(["env", conf, "srun", *options, "sh", "-c", WHERE], user="ada")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip().removeprefix("node=") in nodes

    def test_tres_per_task_with_the_client_filter(self, matrix):
        conf = f"SLURM_CONF={matrix.places.client_conf}"
        option = "--tres-per-task=cpu=2,gres/gpu:20gb:1"
        argv = ["env", conf, "srun", "-n1", option, "sh", "-c", WHERE]
        done = matrix.lab.run(argv, user="ada")
        known = matrix.lab.release != HOST_RELEASE
        assert done.stdout == ("node=mig01\n" if known else ""), done.stderr

    def test_a_choice_of_types_is_a_constraint_of_salloc_too(self, matrix):
        """Its waiting cases above have ended, and such a record does not show it."""
        show = ["sh", "-c", "scontrol show job $SLURM_JOB_ID"]
        done = matrix.lab.run(["salloc", "--gres=gpu:a100|h100:1", *show], user="ada")
        assert " Features=(a100|h100) " in done.stdout

    def test_salloc_hetjob(self, matrix):
        argv = ["salloc", "--gres=gpu:A100:1", ":", "--gres=gpu:20gb:1", "srun", "--het-group=1"]
        done = matrix.lab.run([*argv, "sh", "-c", WHERE], user="ada")
        assert (done.returncode, done.stdout) == (0, "node=mig01\n"), done.stderr
        refused = matrix.lab.run(["salloc", "-n1", ":", "--gpus=h10:1", "true"], user="ada")
        assert "FW302" in refused.stderr

    @pytest.mark.parametrize("parts", [["--gpus=20gb:1"], ["--gpus=A100:1", ":", "--gpus=20gb:1"]])
    def test_salloc_exports_what_the_filter_made_of_its_options(self, matrix, parts):
        """Its own environment, which no hook sees, has SLURM_GPUS for the steps."""
        conf = f"SLURM_CONF={matrix.places.client_conf}"
        step = ["srun", *(["--het-group=1"] if ":" in parts else []), "sh", "-c", WHERE]
        done = matrix.lab.run(["env", conf, "salloc", *parts, *step], user="ada")
        assert (done.returncode, done.stdout) == (0, "node=mig01\n"), done.stderr

    def test_a_client_of_the_api(self, matrix):
        intent = find_intent("20 GB")
        case = next(
            case
            for case in matrix.cases.outcome
            if (case.entry, case.spelling, case.intent) == ("API", "gpu:", intent)
        )
        answer = run_now(matrix, case)
        assert self.output(matrix, answer.said.split()[-1]) == ["node=mig01\n"]

    def test_scrontab(self, matrix):
        """It begins at a full minute, so it is only seen to wait for one."""
        if not has_scrontab(matrix.lab):
            assert matrix.lab.release == HOST_RELEASE  # Debian 12's package lacks it
            return
        text = "#SCRON --gres=gpu:20gb:1\n* * * * * /bin/true\n"
        assert matrix.lab.run(["scrontab", "-"], "ada", stdin=text).returncode == 0
        shown = matrix.lab.run(["squeue", "--noheader", "--user=ada", "-o", "%P %r"]).stdout
        assert shown == "mig BeginTime\n"
        assert matrix.lab.run(["scrontab", "-l"], "ada").stdout == text
        matrix.lab.run(["scrontab", "-r"], "ada")


def run_now(matrix: Matrix, case: Case) -> Answer:
    """Submit an API case that is not held."""
    text = shell(case, "now", matrix.places).replace("--hold", "").replace("=true", f"='{WHERE}'")
    return say(matrix.lab, {"now": text})["now"]
