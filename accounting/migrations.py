# SPDX-License-Identifier: Apache-2.0
"""The store's schema, as a series of sqlite-utils migrations.

Integers only: UTC epoch seconds (`_ts`), milliseconds (`_ms`), energy mJ, carbon mg,
GPU amounts in thousandths of a full GPU (`_milli`). Tables are STRICT; unknown is NULL.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo

from sqlite_utils import Database, Migrations

from fairwatt.accounting.cells import CELL_TABLES, fill_cells
from fairwatt.accounting.migration_carbon import carbon_versions
from fairwatt.accounting.migration_compact_runs import compact_runs
from fairwatt.accounting.migration_hours import hours_by_node
from fairwatt.accounting.migration_waste import waste_tables

__all__ = ["migrations"]

migrations = Migrations("fairwatt")


@migrations()
def m001_runs(db: Database) -> None:
    """Runs, accounts and what they ask and get, as Slurm tells it."""
    _execute_all(
        db,
        """CREATE TABLE run (
            run_id INTEGER PRIMARY KEY,
            cluster TEXT NOT NULL, job_id INTEGER NOT NULL,
            submit_ts INTEGER NOT NULL, restart_cnt INTEGER NOT NULL,
            sluid TEXT, array_job_id INTEGER, array_task_id INTEGER,
            het_job_id INTEGER, het_offset INTEGER,
            user TEXT, uid INTEGER, account TEXT, partition TEXT, qos TEXT, name TEXT,
            state TEXT NOT NULL, exit_code INTEGER, exit_signal INTEGER,
            eligible_ts INTEGER, start_ts INTEGER, end_ts INTEGER,
            elapsed_s INTEGER, suspended_s INTEGER, timelimit_s INTEGER,
            nnodes INTEGER, ncpus INTEGER, mem_mib INTEGER, nodelist TEXT,
            req_tres TEXT, alloc_tres TEXT, gpu_milli INTEGER,
            cpu_time_s INTEGER, slurm_energy_j INTEGER,
            decision TEXT, origin TEXT NOT NULL DEFAULT 'slurm',
            UNIQUE (cluster, job_id, submit_ts, restart_cnt)
        ) STRICT""",
        "CREATE INDEX run_end ON run (end_ts)",
        "CREATE INDEX run_user ON run (user, submit_ts)",
        "CREATE INDEX run_account ON run (account, end_ts)",
        """CREATE TABLE run_gpu (
            run_id INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
            gpu_type TEXT NOT NULL, count INTEGER NOT NULL, milli INTEGER,
            PRIMARY KEY (run_id, gpu_type)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE account (
            cluster TEXT NOT NULL, name TEXT NOT NULL, parent TEXT,
            raw_shares INTEGER, description TEXT, deleted INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (cluster, name)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE membership (
            cluster TEXT NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL,
            raw_shares INTEGER, coordinator INTEGER NOT NULL DEFAULT 0,
            deleted INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (cluster, user, account)
        ) STRICT, WITHOUT ROWID""",
    )


@migrations()
def m002_ledger(db: Database) -> None:
    """What nodes measured: events as received, windows, shares, and the runs' energy."""
    _execute_all(
        db,
        """CREATE TABLE event (
            node TEXT NOT NULL, boot_id TEXT NOT NULL, seq INTEGER NOT NULL,
            kind TEXT NOT NULL, received_ts INTEGER NOT NULL, body TEXT NOT NULL,
            PRIMARY KEY (node, boot_id, seq)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE device (
            device_uuid TEXT PRIMARY KEY, node TEXT NOT NULL, model TEXT, name TEXT NOT NULL,
            minor INTEGER NOT NULL, mig_enabled INTEGER NOT NULL, compute_slices INTEGER NOT NULL,
            seen_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE node_run (
            node TEXT NOT NULL, job_id INTEGER NOT NULL, start_ms INTEGER NOT NULL,
            end_ms INTEGER, restart_cnt INTEGER, sluid TEXT, uid INTEGER, account TEXT,
            mapped_by TEXT NOT NULL, closed_by TEXT,
            run_id INTEGER REFERENCES run ON DELETE SET NULL,
            PRIMARY KEY (node, job_id, start_ms)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX node_run_run ON node_run (run_id)",
        """CREATE TABLE hold (
            node TEXT NOT NULL, job_id INTEGER NOT NULL, start_ms INTEGER NOT NULL,
            device_uuid TEXT NOT NULL, instance_uuid TEXT NOT NULL,
            numerator INTEGER NOT NULL, denominator INTEGER NOT NULL,
            PRIMARY KEY (node, job_id, start_ms, device_uuid, instance_uuid)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE window (
            device_uuid TEXT NOT NULL, t0_ms INTEGER NOT NULL, t1_ms INTEGER NOT NULL,
            node TEXT NOT NULL, measured_mj INTEGER,
            unallocated_idle_mj INTEGER, unallocated_active_mj INTEGER,
            flags INTEGER NOT NULL, method TEXT NOT NULL,
            PRIMARY KEY (device_uuid, t0_ms)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX window_t0 ON window (t0_ms)",
        """CREATE TABLE window_share (
            device_uuid TEXT NOT NULL, t0_ms INTEGER NOT NULL,
            node TEXT NOT NULL, job_id INTEGER NOT NULL, run_start_ms INTEGER NOT NULL,
            instance_uuid TEXT NOT NULL,
            idle_mj INTEGER NOT NULL, active_mj INTEGER NOT NULL, util_permille INTEGER,
            PRIMARY KEY (device_uuid, t0_ms, node, job_id, run_start_ms, instance_uuid),
            FOREIGN KEY (device_uuid, t0_ms) REFERENCES window ON DELETE CASCADE
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX window_share_run ON window_share (node, job_id, run_start_ms)",
        """CREATE TABLE run_energy (
            run_id INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
            device_uuid TEXT NOT NULL, node TEXT NOT NULL, model TEXT,
            idle_mj INTEGER, active_mj INTEGER,
            util_permille INTEGER, measured_s INTEGER NOT NULL,
            flags INTEGER NOT NULL, method TEXT NOT NULL,
            PRIMARY KEY (run_id, device_uuid)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE run_hour (
            run_id INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
            hour_ts INTEGER NOT NULL, idle_mj INTEGER NOT NULL, active_mj INTEGER NOT NULL,
            PRIMARY KEY (run_id, hour_ts)
        ) STRICT, WITHOUT ROWID""",
    )


@migrations()
def m003_carbon_and_rollups(db: Database) -> None:
    """Factors with source and licence, dated PUE, rollups per local day and month."""
    usage = """
        cluster TEXT NOT NULL, account TEXT NOT NULL, user TEXT NOT NULL, gpu_type TEXT NOT NULL,
        runs_ended INTEGER NOT NULL, runs_failed INTEGER NOT NULL, runs_cancelled INTEGER NOT NULL,
        wait_s INTEGER NOT NULL, waited_runs INTEGER NOT NULL,
        cpu_s INTEGER NOT NULL, device_s INTEGER NOT NULL, gpu_milli_s INTEGER NOT NULL,
        util_known_milli_s INTEGER NOT NULL, used_milli_s INTEGER NOT NULL,
        failed_milli_s INTEGER NOT NULL,
        idle_mj INTEGER NOT NULL, active_mj INTEGER NOT NULL,
        unmeasured_milli_s INTEGER NOT NULL, co2_mg INTEGER NOT NULL"""
    _execute_all(
        db,
        """CREATE TABLE carbon_factor (
            version INTEGER NOT NULL, zone TEXT NOT NULL, from_ts INTEGER NOT NULL,
            until_ts INTEGER NOT NULL, g_per_kwh_milli INTEGER NOT NULL,
            method TEXT NOT NULL, source TEXT NOT NULL, licence TEXT NOT NULL,
            retrieved_ts INTEGER NOT NULL,
            PRIMARY KEY (version, zone, from_ts)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE pue (
            from_ts INTEGER PRIMARY KEY, pue_milli INTEGER NOT NULL, source TEXT NOT NULL
        ) STRICT""",
        f"""CREATE TABLE usage_daily (day TEXT NOT NULL, {usage},
            PRIMARY KEY (day, cluster, account, user, gpu_type)
        ) STRICT, WITHOUT ROWID""",
        f"""CREATE TABLE usage_monthly (month TEXT NOT NULL, {usage},
            PRIMARY KEY (month, cluster, account, user, gpu_type)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE unallocated_daily (
            day TEXT NOT NULL, cluster TEXT NOT NULL, model TEXT NOT NULL,
            idle_mj INTEGER NOT NULL, active_mj INTEGER NOT NULL, co2_mg INTEGER NOT NULL,
            PRIMARY KEY (day, cluster, model)
        ) STRICT, WITHOUT ROWID""",
        "CREATE TABLE dirty_day (day TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
        "INSERT INTO meta VALUES ('data_version', '0')",
    )


@migrations()
def m004_quality_and_dirt(db: Database) -> None:
    """What a reader must know about a run, quality per hour, and what waits to be settled."""
    _execute_all(
        db,
        "ALTER TABLE run ADD COLUMN db_index INTEGER",
        "ALTER TABLE run ADD COLUMN flags INTEGER NOT NULL DEFAULT 0",
        # Amounts are hold-ms: a run on two devices collects two each ms. NULL: not known by
        # hour; then the whole hour counts as measured with the run's own utilisation.
        "ALTER TABLE run_hour ADD COLUMN measured_ms INTEGER",
        "ALTER TABLE run_hour ADD COLUMN util_ms INTEGER",
        "ALTER TABLE run_hour ADD COLUMN busy_ms INTEGER",
        # Energy whose factor is another year's or the world's.
        *(
            f"ALTER TABLE {table} ADD COLUMN factor_fallback_mj INTEGER NOT NULL DEFAULT 0"
            for table in ("usage_daily", "usage_monthly", "unallocated_daily")
        ),
        """CREATE TABLE unsettled (
            node TEXT NOT NULL, job_id INTEGER NOT NULL, start_ms INTEGER NOT NULL,
            PRIMARY KEY (node, job_id, start_ms)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX node_run_job ON node_run (job_id)",
        "CREATE INDEX hold_device ON hold (device_uuid, start_ms)",
        "CREATE TABLE dirty_hour (hour_ts INTEGER PRIMARY KEY) STRICT",
        """CREATE TABLE rejected_row (
            source TEXT NOT NULL, line TEXT NOT NULL, reason TEXT NOT NULL,
            PRIMARY KEY (source, line)
        ) STRICT, WITHOUT ROWID""",
    )


@migrations()
def m005_stray_hours(db: Database) -> None:
    """Measured hours far from their run's time in Slurm, so that a day's rollup finds them."""
    _execute_all(
        db,
        """CREATE TABLE stray_hour (
            hour_ts INTEGER NOT NULL,
            run_id INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
            PRIMARY KEY (hour_ts, run_id)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX stray_hour_run ON stray_hour (run_id)",
    )


@migrations()
def m006_decisions(db: Database) -> None:
    """What the submit policy decided, and which run a decision led to.

    `notes` is JSON [[rule, mode, code, text], …]; the request itself is in the event's body.
    """
    _execute_all(
        db,
        """CREATE TABLE decision (
            node TEXT NOT NULL, boot_id TEXT NOT NULL, seq INTEGER NOT NULL,
            id TEXT NOT NULL, t_ms INTEGER NOT NULL, cluster TEXT NOT NULL, verb TEXT NOT NULL,
            uid INTEGER, user TEXT, account TEXT, partition TEXT, job_id INTEGER,
            asked TEXT NOT NULL, given TEXT NOT NULL, accepted INTEGER NOT NULL,
            edited INTEGER NOT NULL, notes TEXT NOT NULL, took_us INTEGER NOT NULL,
            PRIMARY KEY (node, boot_id, seq)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX decision_id ON decision (id)",
        "CREATE INDEX decision_job ON decision (job_id) WHERE job_id IS NOT NULL",
        "CREATE INDEX decision_t ON decision (t_ms)",
        "ALTER TABLE run ADD COLUMN decision_id TEXT",
        "CREATE INDEX run_decision ON run (decision_id) WHERE decision_id IS NOT NULL",
        # Whose a decision is: a job that names no account gets the user's default one, which only
        # the run tells, or the user's memberships where there is but one. No function but the
        # core's: the schema is not trusted.
        """CREATE VIEW decision_told AS
            SELECT d.node, d.boot_id, d.seq, d.id, d.t_ms, d.cluster, d.verb, d.uid,
                COALESCE(d.user,
                    (SELECT r.user FROM run r WHERE r.decision_id = d.id LIMIT 1)) AS user,
                COALESCE(d.account,
                    (SELECT r.account FROM run r WHERE r.decision_id = d.id LIMIT 1),
                    (SELECT MIN(m.account) FROM membership m
                      WHERE m.cluster = d.cluster AND m.user = d.user AND NOT m.deleted
                     HAVING COUNT(*) = 1)) AS account,
                COALESCE(d.job_id,
                    (SELECT COALESCE(r.array_job_id, r.job_id) FROM run r
                      WHERE r.decision_id = d.id LIMIT 1)) AS job_id,
                d.partition, d.asked, d.given, d.accepted, d.edited, d.notes, d.took_us
            FROM decision d""",
    )


@migrations()
def m007_pace(db: Database) -> None:
    """Clocks by window, and how each run's GPUs kept pace: of the run, and of each of its ranks.

    `lag_permille` is how far `metric` lay below the peers' median while the rank was slow.
    """
    _execute_all(
        db,
        "ALTER TABLE window ADD COLUMN clock_mhz INTEGER",
        """CREATE TABLE run_pace (
            run_id INTEGER PRIMARY KEY REFERENCES run ON DELETE CASCADE,
            state TEXT NOT NULL, ranks INTEGER NOT NULL, compared INTEGER NOT NULL,
            steps INTEGER NOT NULL, step_s INTEGER NOT NULL, swing_permille INTEGER
        ) STRICT""",
        """CREATE TABLE rank_pace (
            run_id INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
            device_uuid TEXT NOT NULL, instance_uuid TEXT NOT NULL, node TEXT NOT NULL,
            kind TEXT NOT NULL, whole INTEGER NOT NULL, steps INTEGER NOT NULL,
            util_permille INTEGER, power_mw INTEGER, clock_mhz INTEGER, last_ts INTEGER,
            metric TEXT, lag_permille INTEGER, slow_steps INTEGER,
            from_ts INTEGER, until_ts INTEGER,
            PRIMARY KEY (run_id, device_uuid, instance_uuid)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX rank_pace_last ON rank_pace (last_ts) WHERE whole AND steps >= 3",
    )


@migrations()
def m008_compact_runs(db: Database) -> None:
    """Runs in a third of the room: table job_run, and a view run that reads as the table did."""
    compact_runs(db)


@migrations()
def m009_host(db: Database) -> None:
    """CPU packages, DRAM and the rest of nodes: devices of a kind, and sums of their own.

    `owner` is run, unallocated or system; only a run has an account and a user.
    """
    owned = """
        cluster TEXT NOT NULL, owner TEXT NOT NULL, account TEXT NOT NULL, user TEXT NOT NULL,
        kind TEXT NOT NULL, idle_mj INTEGER NOT NULL, active_mj INTEGER NOT NULL,
        co2_mg INTEGER NOT NULL, factor_fallback_mj INTEGER NOT NULL"""
    _execute_all(
        db,
        "ALTER TABLE device ADD COLUMN kind TEXT NOT NULL DEFAULT 'gpu'",
        "CREATE INDEX device_host ON device (node) WHERE kind <> 'gpu'",
        "ALTER TABLE window ADD COLUMN system_mj INTEGER DEFAULT 0",
        """CREATE TABLE run_host_hour (
            run_id INTEGER NOT NULL REFERENCES job_run ON DELETE CASCADE,
            hour_ts INTEGER NOT NULL, kind TEXT NOT NULL,
            idle_mj INTEGER NOT NULL, active_mj INTEGER NOT NULL,
            PRIMARY KEY (run_id, hour_ts, kind)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX run_host_hour_ts ON run_host_hour (hour_ts)",
        f"""CREATE TABLE host_daily (day TEXT NOT NULL, {owned},
            PRIMARY KEY (day, cluster, owner, account, user, kind)
        ) STRICT, WITHOUT ROWID""",
        f"""CREATE TABLE host_monthly (month TEXT NOT NULL, {owned},
            PRIMARY KEY (month, cluster, owner, account, user, kind)
        ) STRICT, WITHOUT ROWID""",
    )


@migrations()
def m010_carbon(db: Database) -> None:
    """All that carbon is computed from by version, and energy by quarter of an hour."""
    carbon_versions(db)


@migrations()
def m011_upkeep(db: Database) -> None:
    """Where windows were moved to, and which events are known although their rows are gone.

    `window_month` has a row a file of moved windows (`windows.py`); `dropped_ts`: it is gone.
    `event_span` stands for the events first_seq to last_seq, of which none tells of a time
    after `until_ms`.
    """
    _execute_all(
        db,
        """CREATE TABLE window_month (
            month TEXT PRIMARY KEY, from_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL,
            windows INTEGER NOT NULL, dropped_ts INTEGER
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE event_span (
            node TEXT NOT NULL, boot_id TEXT NOT NULL,
            first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
            until_ms INTEGER NOT NULL, received_ts INTEGER NOT NULL,
            PRIMARY KEY (node, boot_id, first_seq)
        ) STRICT, WITHOUT ROWID""",
    )


@migrations()
def m012_waste(db: Database) -> None:
    """Memory in use, what idle policies move, classes of runs, and billing units."""
    waste_tables(db)


@migrations()
def m013_cells(db: Database) -> None:
    """Sums of windows by hour, from which runs are settled without reading windows again."""
    _execute_all(
        db,
        *CELL_TABLES,
        "ALTER TABLE unsettled ADD COLUMN from_ms INTEGER NOT NULL DEFAULT 0",
        # Until when a run's pace has been judged.
        """CREATE TABLE pace_judged (
            run_id INTEGER PRIMARY KEY REFERENCES job_run ON DELETE CASCADE,
            until_ms INTEGER NOT NULL
        ) STRICT""",
        # Runs ask for the few windows of unknown energy that they held.
        "CREATE INDEX window_unknown ON window (device_uuid, t0_ms) WHERE measured_mj IS NULL",
    )
    fill_cells(db.conn, ZoneInfo("UTC"))


@migrations()
def m014_windows_by_device(db: Database) -> None:
    """Windows are asked for by device: the index by time alone took a sixth of their room."""
    db.execute("DROP INDEX window_t0")


@migrations()
def m015_shares_by_device(db: Database) -> None:
    """A run's shares are found by its devices and time: their index by run cost each window."""
    db.execute("DROP INDEX window_share_run")


@migrations()
def m016_hours_by_node(db: Database) -> None:
    """Sums of devices by hour lie by node, as they come, not by UUID."""
    hours_by_node(db)


def _execute_all(db: Database, *statements: str) -> None:
    for statement in statements:
        db.execute(statement)
