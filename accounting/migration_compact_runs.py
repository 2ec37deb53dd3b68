# SPDX-License-Identifier: Apache-2.0
"""The migration that lays runs down in a third of the room: table job_run, view run.

Its own file for its length; `migrations.py` gives it its place in the series.
"""

from __future__ import annotations

from sqlite_utils import Database

__all__ = ["compact_runs"]

_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_SHIFTS = range(60, -1, -5)

# A SLUID is the number of Slurm's record in Crockford's base 32; functions of our own cannot be
# in a view. Before 25.11 the numbers are small, and there are no SLUIDs.
_SLUID = " || ".join(
    [
        "'s'",
        *(f"substr('{_LETTERS}', ((r.record_id >> {shift}) & 31) + 1, 1)" for shift in _SHIFTS),
    ]
).replace("(r.record_id >> 60) & 31", "(r.record_id >> 60) & 15")
_IS_INDEX = f"r.record_id BETWEEN 1 AND {2**48}"
_IS_HET = "r.flags & (1 << 29)"
_NUMBER = " | ".join(
    f"((instr('{_LETTERS}', substr(r.sluid, {place}, 1)) - 1) << {shift})"
    for place, shift in enumerate(_SHIFTS, start=2)
)

_STEPS = (
    "CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT",
    """CREATE TABLE tres (
        id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE,
        mem_mib INTEGER, gpu_milli INTEGER, flags INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE tres_gpu (
        tres_id INTEGER NOT NULL REFERENCES tres ON DELETE CASCADE,
        gpu_type TEXT NOT NULL, count INTEGER NOT NULL, milli INTEGER,
        PRIMARY KEY (tres_id, gpu_type)
    ) STRICT, WITHOUT ROWID""",
    *(
        f"INSERT OR IGNORE INTO word (text) SELECT DISTINCT {name} FROM job_run"  # noqa: S608
        f" WHERE {name} IS NOT NULL ORDER BY 1"
        for name in ("cluster", "state", "partition", "qos", "account", "user", "nodelist")
    ),
    # What a text means was told by the runs: the newest knows best.
    """INSERT OR IGNORE INTO tres (text, mem_mib, gpu_milli, flags)
        SELECT alloc_tres, mem_mib, gpu_milli, flags & 56 FROM job_run
        WHERE alloc_tres IS NOT NULL ORDER BY run_id DESC""",
    """INSERT OR IGNORE INTO tres (text, mem_mib, gpu_milli, flags)
        SELECT req_tres, mem_mib, NULL, flags & 8 FROM job_run
        WHERE req_tres IS NOT NULL ORDER BY alloc_tres IS NOT NULL, run_id DESC""",
    """INSERT OR IGNORE INTO tres_gpu (tres_id, gpu_type, count, milli)
        SELECT t.id, g.gpu_type, g.count, g.milli FROM run_gpu g
        JOIN job_run r USING (run_id) JOIN tres t ON t.text = r.alloc_tres
        ORDER BY run_id DESC""",
    "DROP TABLE run_gpu",
    """CREATE TABLE new_run (
        run_id INTEGER PRIMARY KEY,
        cluster_id INTEGER NOT NULL, job_id INTEGER NOT NULL, submit_ts INTEGER NOT NULL,
        restart_cnt INTEGER NOT NULL, record_id INTEGER,
        group_job_id INTEGER, group_index INTEGER,
        user_id INTEGER, uid INTEGER, account_id INTEGER, partition_id INTEGER, qos_id INTEGER,
        name TEXT, state_id INTEGER NOT NULL, exit_status INTEGER,
        eligible_off_s INTEGER, start_off_s INTEGER, end_ts INTEGER, elapsed_off_s INTEGER,
        suspended_s INTEGER, timelimit_min INTEGER, nnodes INTEGER, ncpus INTEGER,
        nodelist_id INTEGER, req_tres_id INTEGER, alloc_tres_id INTEGER,
        cpu_time_s INTEGER, slurm_energy_j INTEGER, decision TEXT, decision_id TEXT,
        flags INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    f"""INSERT INTO new_run
        SELECT run_id, (SELECT id FROM word WHERE text = r.cluster), job_id, submit_ts,
            restart_cnt, iif(length(sluid) = 14, {_NUMBER}, db_index),
            coalesce(het_job_id, array_job_id), coalesce(het_offset, array_task_id),
            (SELECT id FROM word WHERE text = r.user), uid,
            (SELECT id FROM word WHERE text = r.account),
            (SELECT id FROM word WHERE text = r.partition),
            (SELECT id FROM word WHERE text = r.qos),
            name, (SELECT id FROM word WHERE text = r.state),
            iif(exit_code BETWEEN 0 AND 255 AND coalesce(exit_signal, 0) BETWEEN 0 AND 65535,
                exit_code | (coalesce(exit_signal, 0) << 8), NULL),
            eligible_ts - submit_ts, start_ts - submit_ts, end_ts,
            iif(start_ts IS NULL, NULL, elapsed_s - coalesce(end_ts - start_ts, 0)),
            suspended_s, timelimit_s / 60, nnodes, ncpus,
            (SELECT id FROM word WHERE text = r.nodelist),
            (SELECT id FROM tres WHERE text = r.req_tres),
            (SELECT id FROM tres WHERE text = r.alloc_tres),
            cpu_time_s, slurm_energy_j, decision, decision_id,
            (flags & ~56) | ((het_job_id IS NOT NULL) << 29) | ((origin = 'seed') << 30)
        FROM job_run r ORDER BY run_id""",  # noqa: S608
    # Without foreign keys for this transaction: else all that hangs on the runs would go too.
    "DROP TABLE job_run",
    "ALTER TABLE new_run RENAME TO job_run",
    "CREATE UNIQUE INDEX run_key ON job_run (job_id, submit_ts, restart_cnt, cluster_id)",
    "CREATE INDEX run_end ON job_run (end_ts)",
    "CREATE INDEX run_user ON job_run (user_id, submit_ts)",
    "CREATE INDEX run_account ON job_run (account_id, end_ts)",
    "CREATE INDEX run_decision ON job_run (decision_id) WHERE decision_id IS NOT NULL",
    f"""CREATE VIEW run AS
        SELECT r.run_id, c.text AS cluster, r.job_id, r.submit_ts, r.restart_cnt,
            iif({_IS_INDEX}, NULL, {_SLUID}) AS sluid,
            iif({_IS_HET}, NULL, r.group_job_id) AS array_job_id,
            iif({_IS_HET}, NULL, r.group_index) AS array_task_id,
            iif({_IS_HET}, r.group_job_id, NULL) AS het_job_id,
            iif({_IS_HET}, r.group_index, NULL) AS het_offset,
            u.text AS user, r.uid, a.text AS account, p.text AS partition, q.text AS qos, r.name,
            s.text AS state, r.exit_status & 255 AS exit_code, r.exit_status >> 8 AS exit_signal,
            r.submit_ts + r.eligible_off_s AS eligible_ts,
            r.submit_ts + r.start_off_s AS start_ts, r.end_ts,
            r.elapsed_off_s + coalesce(r.end_ts - r.submit_ts - r.start_off_s, 0) AS elapsed_s,
            r.suspended_s, r.timelimit_min * 60 AS timelimit_s, r.nnodes, r.ncpus,
            iif(r.alloc_tres_id IS NULL, w.mem_mib, g.mem_mib) AS mem_mib,
            n.text AS nodelist, w.text AS req_tres, g.text AS alloc_tres,
            CASE WHEN r.alloc_tres_id IS NOT NULL THEN g.gpu_milli
                 WHEN coalesce(w.flags, 0) & 8 THEN NULL ELSE 0 END AS gpu_milli,
            r.cpu_time_s, r.slurm_energy_j, r.decision,
            iif(r.flags & (1 << 30), 'seed', 'slurm') AS origin,
            iif({_IS_INDEX}, r.record_id, NULL) AS db_index,
            (r.flags & ((1 << 29) - 1))
                | iif(r.alloc_tres_id IS NULL, coalesce(w.flags, 0) & 8, g.flags) AS flags,
            r.decision_id
        FROM job_run r
        LEFT JOIN word c ON c.id = r.cluster_id
        LEFT JOIN word u ON u.id = r.user_id
        LEFT JOIN word a ON a.id = r.account_id
        LEFT JOIN word p ON p.id = r.partition_id
        LEFT JOIN word q ON q.id = r.qos_id
        LEFT JOIN word s ON s.id = r.state_id
        LEFT JOIN word n ON n.id = r.nodelist_id
        LEFT JOIN tres w ON w.id = r.req_tres_id
        LEFT JOIN tres g ON g.id = r.alloc_tres_id""",  # noqa: S608
    """CREATE VIEW run_gpu AS
        SELECT r.run_id, g.gpu_type, g.count, g.milli
        FROM job_run r JOIN tres_gpu g ON g.tres_id = r.alloc_tres_id""",
)


def compact_runs(db: Database) -> None:
    """Move table run to job_run, its texts by number, and show it as before in a view run."""
    (told,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'decision_told'").fetchone()
    db.execute("DROP VIEW decision_told")
    # Renaming makes the other tables refer to job_run, whatever stands under that name later.
    db.execute("ALTER TABLE run RENAME TO job_run")
    for name in ("run_end", "run_user", "run_account", "run_decision"):
        db.execute(f"DROP INDEX {name}")
    for step in _STEPS:
        db.execute(step)
    db.execute(told)
