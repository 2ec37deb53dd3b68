# SPDX-License-Identifier: Apache-2.0
"""`make demo` and `make demo-check`: a real cluster, 24 real jobs, the dashboard among them.

The invented year fills the history; the live jobs run through sbatch, hooks, agents and collector.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fairwatt.core.catalogue import load_catalogue
from tests.fakes import gpu_load
from tests.lab.cluster import OneHostCluster
from tests.lab.demo_check import (
    Verdict,
    check_conservation,
    check_energy,
    check_runs,
    check_settled,
    check_verified,
)
from tests.lab.demo_shell import install_shell
from tests.lab.job_mix import JOBS, MIX, USE_GPU, Spec, script
from tests.lab.layout import NodeLayout
from tests.lab.programs import command
from tests.lab.waiting import LabError, await_value

PORT = 8080
JOBS_S = 150.0
SEED_S = 60.0
READY = """
demo: open {url} and choose at the top right whom to look as:
        ada (a researcher), hana (head of physics) or root (an administrator)
demo: submit a job of your own from another terminal, and find it on ada's page:
        {shell} ada -c 'sbatch --gres=gpu:20gb:1 --wrap="use-gpu 100 10"'
      ("use-gpu WATTS SECONDS" stands for your program). A shell: {shell} ada
      The administrator's, which also knows the command fairwatt: {shell} root
      For example: fairwatt explain -- --gres=gpu:20gb:1; fairwatt doctor; sinfo
demo: Ctrl-C ends everything
"""


def say(text: str) -> None:
    """Print a line of progress at once."""
    print(f"demo: {text}", flush=True)


# -- the cluster with everything of ours ---------------------------------------------------------


@contextmanager
def demo_cluster(port: int | None, *, seed: bool) -> Iterator[OneHostCluster]:
    """The one-host cluster with our daemons, the job program, and the invented year if asked.

    Without a port the dashboard takes a free one.
    """
    root = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))
    settings: dict[str, object] = {"collector.sync_s": 2.0}
    if port is not None:
        settings["dashboard.listen"] = f"127.0.0.1:{port}"
    cluster = OneHostCluster(root, settings=settings, slurm={"CliFilterPlugins": "lua"})
    try:
        cluster.paths.make()
        with _seeding(cluster, seed):
            cluster.start()
            say(f"Slurm {cluster.release} with four nodes is up ({cluster.start_s:.1f} s)")
        install_program(cluster)
        cluster.start_fairwatt()
        say("policy daemon, collector and four node agents are up")
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def _seeding(cluster: OneHostCluster, seed: bool) -> Iterator[None]:
    """Seed the store in a process of its own while Slurm starts; both take seconds."""
    if not seed:
        yield
        return
    argv = [*command("demo", "--seed-only", "--json", "--database", str(cluster.database))]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield
            out, _ = process.communicate(timeout=SEED_S)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise SystemExit("demo: the invented year could not be written")
    facts = json.loads(out)
    say(f"an invented year is in the store ({facts['runs']} runs, {facts['seconds']} s)")


def refuse_taken(port: int) -> None:
    """End with one line if something listens there: its page would pass for ours."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise SystemExit(
                f"demo: port {port} cannot be used ({error.strerror}); "
                f"choose another: make demo PORT={port + 1}"
            ) from error


def install_program(cluster: OneHostCluster) -> None:
    """Copy what the jobs run to where their users can read it."""
    folder = cluster.paths.root / "bin"
    folder.mkdir(mode=0o755)
    shutil.copy(gpu_load.__file__, folder / "gpu_load.py")
    (folder / "use-gpu").write_text(USE_GPU.format(root=cluster.paths.root))
    for file in folder.iterdir():
        file.chmod(0o755)


# -- the jobs ------------------------------------------------------------------------------------


def submit_all(cluster: OneHostCluster, mix: Sequence[Spec] = MIX) -> dict[str, list[int]]:
    """Submit the mix, print each answer of the hook, and return the job ids by label."""
    jobs: dict[str, list[int]] = {}
    for spec in mix:
        after = [f"--dependency=afterany:{jobs[spec.after][0]}"] if spec.after else []
        result = cluster.sbatch(
            [f"--job-name={spec.label}", f"--account={spec.account}", *spec.args, *after],
            script(spec, str(cluster.paths.root)),
            user=spec.user,
        )
        jobs[spec.label] = _job_ids(cluster, spec, result.job_id)
        told = [line for line in result.stderr.splitlines() if "fairwatt" in line]
        say(f"  {spec.user:<5} sbatch {' '.join(spec.args)}")
        for line in told:
            print(f"{'':<14}{line}", flush=True)
    return jobs


def _job_ids(cluster: OneHostCluster, spec: Spec, job_id: int | None) -> list[int]:
    """Array tasks get their own ids when they start: the ids are read from sacct at the end."""
    if (job_id is None) != (spec.fate == "rejected"):
        raise SystemExit(f"demo: {spec.label}: submitted with job id {job_id}, which is wrong")
    return [] if job_id is None else [job_id]


def steer(cluster: OneHostCluster, jobs: dict[str, list[int]], mix: Sequence[Spec] = MIX) -> None:
    """Cancel the pending one and requeue the running one."""
    by_fate = {spec.fate: jobs[spec.label] for spec in mix}
    cluster.run(["scancel", str(by_fate["cancelled"][0])])
    (requeued,) = by_fate["requeued"]
    cluster.wait_job(requeued, {"RUNNING"})
    await_value(
        lambda: any((node.job_dir / str(requeued)).exists() for node in cluster.nodes.values()),
        what="the requeued job's devices",
        timeout_s=20,
    )
    time.sleep(1.0)  # the first run is to use some energy: this is its length, not a wait
    cluster.run(["scontrol", "requeue", str(requeued)])
    await_value(
        lambda: (
            cluster.run(["scontrol", "update", f"JobId={requeued}", "StartTime=now"]).returncode
            == 0
        ),
        what="the requeued job released",
        timeout_s=20,
    )


def finish(cluster: OneHostCluster, jobs: dict[str, list[int]], mix: Sequence[Spec] = MIX) -> None:
    """Wait until every job has ended and give each array its tasks' ids."""
    for spec in mix:
        for job_id in list(jobs[spec.label]):
            cluster.wait_job(job_id, timeout_s=JOBS_S)
            rows = cluster.wait_recorded(job_id)
            jobs[spec.label] = sorted({int(row["JobIDRaw"]) for row in rows})


# -- the check -----------------------------------------------------------------------------------


def settle(cluster: OneHostCluster) -> sqlite3.Connection:
    """Wait until the nodes have told of every end, import, and open the store at that state."""
    db = sqlite3.connect(f"file:{cluster.database}?mode=ro", uri=True)
    db.row_factory = sqlite3.Row
    await_value(
        lambda: not db.execute("SELECT 1 FROM node_run WHERE end_ms IS NULL").fetchone(),
        what="every epilog in the store",
        timeout_s=30,
    )
    done = cluster.fairwatt("sync", "--once")
    if done.returncode:
        raise SystemExit(f"demo: fairwatt sync failed: {done.stderr}")
    db.execute("BEGIN")  # the collector goes on writing: all figures are of one state
    return db


def verify(cluster: OneHostCluster, jobs: dict[str, list[int]]) -> list[str]:
    """Print the figures and return what did not hold."""
    db = settle(cluster)
    fakes = {name: node.fake for name, node in cluster.nodes.items()}
    labels = {job_id: label for label, ids in jobs.items() for job_id in ids}
    runs = check_runs(db, jobs, MIX)
    energy = check_energy(db, fakes, idle_mw(cluster), labels)
    settled = check_settled(db)
    conserved = check_conservation(db, fakes, nodes_of_devices(cluster))
    _show("Every submission", runs)
    _show("Each run and GPU: length, measured, the fake device's truth, difference", energy)
    _show("What the windows hold is what the runs carry", settled)
    verified = check_verified(cluster.database)
    _show("Every device, in mJ", conserved)
    _show("fairwatt ledger verify", verified)
    checks = (runs, energy, settled, conserved, verified)
    return [fault for check in checks for fault in check.faults]


def _show(title: str, verdict: Verdict) -> None:
    print(f"\n{title}:")
    print("\n".join(verdict.lines))


def nodes_of_devices(cluster: OneHostCluster) -> dict[str, str]:
    return {gpu.uuid: node.name for node in cluster.nodes.values() for gpu in node.layout.gpus}


def idle_mw(cluster: OneHostCluster) -> dict[str, int]:
    """Idle board power by UUID, as the catalogue has it."""
    return idle_mw_of(node.layout for node in cluster.nodes.values())


def idle_mw_of(layouts: Iterable[NodeLayout]) -> dict[str, int]:
    """As `idle_mw`, for nodes of any lab."""
    catalogue = load_catalogue(None)
    found = {}
    for layout in layouts:
        for gpu in layout.gpus:
            model = catalogue.model_of_name(gpu.name, gpu.memory_mib)
            assert model is not None
            found[gpu.uuid] = model.idle_mig_mw if gpu.instances else model.idle_mw
    return found


# -- command -------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; with --check verify and end."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--check", action="store_true", help="verify the figures, print them, end")
    parser.add_argument("--port", type=int, help="the dashboard's port; 0 takes a free one")
    parser.add_argument("--no-seed", action="store_true", help="without the invented year")
    options = parser.parse_args(arguments)
    # A shell without job control starts background commands with SIGINT ignored: undo that too.
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, signal.default_int_handler)
    began = time.monotonic()
    port = PORT if options.port is None and not options.check else options.port or None
    if port is not None:
        refuse_taken(port)
    try:
        with demo_cluster(port, seed=not options.no_seed) as cluster:
            cluster.start_dashboard()
            took_s = time.monotonic() - began
            say(f"dashboard: {cluster.dashboard_url} ({took_s:.0f} s after the start)")
            say(f"{JOBS} jobs are submitted now, with what the submit hook answers:")
            jobs = submit_all(cluster)
            say("waiting for the jobs, about a minute; the page shows them as they end")
            steer(cluster, jobs)
            finish(cluster, jobs)
            say(f"all {JOBS} jobs have ended")
            return _checked(cluster, jobs) if options.check else _serve(cluster)
    except KeyboardInterrupt:
        say("stopped; everything it started has ended")
        return 0
    except (LabError, OSError) as error:
        say(f"it failed, and everything it started has ended: {error}")
        return 1


def _checked(cluster: OneHostCluster, jobs: dict[str, list[int]]) -> int:
    faults = verify(cluster, jobs)
    for fault in faults:
        print(f"WRONG: {fault}")
    outcome = f"{len(faults)} figures wrong" if faults else "all figures hold"
    print(f"\ndemo-check: {JOBS} jobs, {outcome}")
    return 1 if faults else 0


def _serve(cluster: OneHostCluster) -> int:
    shell = install_shell(cluster.paths, cluster.env, Path(command()[0]), cluster.config_path)
    print(READY.format(url=cluster.dashboard_url, shell=shell), flush=True)
    signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
