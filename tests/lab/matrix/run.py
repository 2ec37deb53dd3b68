# SPDX-License-Identifier: Apache-2.0
"""Submits every case of the matrix to a live cluster and reads what came of each.

Nothing starts: jobs are held, or begin later. One shell submits many: a new login per job would
cost more than the job.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from fairwatt.core.call import call
from tests.lab.cluster import OneHostCluster
from tests.lab.matrix import outcomes
from tests.lab.matrix.cases import Case, Places, all_cases, crontab, shell
from tests.lab.paths import REPOSITORY

__all__ = ["Answer", "Results", "install", "records", "run_matrix", "say"]

USER = "ada"
CRON_USER = "ben"
SHELLS = 2
BEGIN, END = "\x1e", "\x1f"
_ANSWER = re.compile(rf"{BEGIN}(\S+)\n(.*?){END}(\d+)\n", re.DOTALL)
_RECORD = re.compile(r"(\w+)=(\S+)")
_WOULD_START = re.compile(r"Job (\d+) to start .* on nodes (\S+) in partition (\S+)")


@dataclass(frozen=True)
class Answer:
    """What a command said and its status."""

    said: str
    status: int


@dataclass
class Results:
    """What came of each case, what the user was told, and the ids that only tests got."""

    outcome: dict[Case, str] = field(default_factory=dict)
    told: dict[Case, tuple[str, ...]] = field(default_factory=dict)
    test_ids: list[str] = field(default_factory=list)
    test_nodes: dict[Case, str] = field(default_factory=dict)


def install(lab: OneHostCluster) -> Places:
    """Write what the clients need into the cluster's folder."""
    folder = lab.paths.etc / "client"
    folder.mkdir()
    for name in ("plugstack.conf", "gres.conf", "cgroup.conf", "cli_filter.lua"):
        shutil.copy(lab.paths.etc / name, folder)
    text = lab.paths.slurm_conf.read_text() + "\nCliFilterPlugins=lua\n"
    (folder / "slurm.conf").write_text(text)
    wire = lab.paths.etc / "wire.so"
    source = REPOSITORY / "tests" / "lab" / "matrix" / "wire.c"
    call(["cc", "-shared", "-fPIC", "-O1", "-o", str(wire), str(source)], timeout_s=60)
    return Places(folder / "slurm.conf", wire)


def run_matrix(lab: OneHostCluster, places: Places) -> Results:
    """Submit all cases that this release's programs can submit, and read the outcomes."""
    tags = {f"matrix-{number}": case for number, case in enumerate(all_cases())}
    crons = {tag: case for tag, case in tags.items() if case.entry == "scrontab"}
    others = {tag: shell(case, tag, places) for tag, case in tags.items() if tag not in crons}
    answers = say(lab, others)
    if has_scrontab(lab):
        answers |= _schedule(lab, crons)
    found = records(lab)
    results = Results()
    for tag, answer in answers.items():
        _read(results, tags[tag], answer, found.get(tag, []))
    return results


def has_scrontab(lab: OneHostCluster) -> bool:
    """Whether this release's clients have scrontab (Debian 12's package lacks it)."""
    return lab.run(["sh", "-c", "command -v scrontab"], user=CRON_USER).returncode == 0


def say(
    lab: OneHostCluster, commands: Mapping[str, str], user: str = USER, shells: int = SHELLS
) -> dict[str, Answer]:
    """Run shell commands in a few shells side by side; return their answers by tag."""
    items = list(commands.items())
    with ThreadPoolExecutor(shells) as pool:
        parts = pool.map(lambda n: _one_shell(lab, items[n::shells], user), range(shells))
        return {tag: answer for part in parts for tag, answer in part.items()}


def _one_shell(
    lab: OneHostCluster, items: Iterable[tuple[str, str]], user: str
) -> dict[str, Answer]:
    lines = [
        f"printf '\\036%s\\n' {tag}\n{{ {command}\n}} </dev/null 2>&1\nprintf '\\037%s\\n' $?"
        for tag, command in items
    ]
    done = lab.run(["sh", "-s"], user, stdin="\n".join(lines), timeout_s=300)
    found = _ANSWER.findall(done.stdout)
    return {tag: Answer(said, int(status)) for tag, said, status in found}


def _schedule(lab: OneHostCluster, cases: Mapping[str, Case]) -> dict[str, Answer]:
    """Refused ones each in a crontab of its own, then all others in one."""
    lone = {tag: case for tag, case in cases.items() if case.intent.refused or _newer(lab, case)}
    answers = {tag: _install_crontab(lab, {tag: case}) for tag, case in lone.items()}
    together = {tag: case for tag, case in cases.items() if tag not in lone}
    answer = _install_crontab(lab, together)
    return answers | dict.fromkeys(together, answer)


def _newer(lab: OneHostCluster, case: Case) -> bool:
    return case.form.since > lab.release


def _install_crontab(lab: OneHostCluster, cases: dict[str, Case]) -> Answer:
    done = lab.run(["scrontab", "-"], CRON_USER, stdin=crontab(cases))
    return Answer(done.stdout + done.stderr, done.returncode)


def records(lab: OneHostCluster) -> dict[str, list[dict[str, str]]]:
    """The records of all jobs by their comment."""
    found: dict[str, list[dict[str, str]]] = {}
    shown = lab.run(["scontrol", "--oneliner", "show", "jobs"], check=True).stdout
    for line in shown.splitlines():
        record = dict(_RECORD.findall(line))
        if "Comment" in record:
            found.setdefault(record["Comment"], []).append(record)
    return found


def _read(results: Results, case: Case, answer: Answer, found: list[dict[str, str]]) -> None:
    results.told[case] = outcomes.codes(answer.said)
    would = _WOULD_START.search(answer.said)
    if case.entry == "--test-only" and would is not None:
        results.test_ids.append(would[1])
        results.test_nodes[case] = would[2]
        results.outcome[case] = outcomes.accepted(would[3])
    elif found:
        each = sorted({outcomes.of_record(record) for record in found})
        results.outcome[case] = " | ".join(each)
    else:
        results.outcome[case] = outcomes.refusal(answer.said)
