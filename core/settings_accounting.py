# SPDX-License-Identifier: Apache-2.0
"""Settings of the accounting host: collector, store, carbon, reports, dashboard."""

from __future__ import annotations

from fairwatt.core.setting import Setting

__all__ = ["ACCOUNTING", "IDLE_POLICIES"]

IDLE_POLICIES = ("reserved", "active", "none")

ACCOUNTING: tuple[Setting, ...] = (
    Setting("collector.listen", str, "127.0.0.1:8181", "Address and port of the collector."),
    Setting(
        "collector.database", str, "/var/lib/fairwatt/fairwatt.db", "SQLite file of the store."
    ),
    Setting(
        "collector.node_uids",
        list,
        [0],
        "User ids whose munge credential may deliver what nodes measure.",
    ),
    Setting(
        "collector.policyd_uids",
        list,
        [0],
        "User ids whose munge credential may deliver decisions; add SlurmUser's, as which policyd runs.",
    ),
    Setting("collector.max_body_bytes", int, 8_388_608, "Largest accepted body, in bytes."),
    Setting(
        "collector.inbox_mib",
        int,
        16,
        "So much of bodies, in MiB, is worked on at once (some ten times as much memory); who comes then is asked to come again.",
    ),
    Setting(
        "collector.check_origin",
        str,
        "off",
        "Whether the host that a munge credential was made on must be the node that the events name: off, warn (in the log), refuse.",
        ("off", "warn", "refuse"),
    ),
    Setting(
        "collector.metrics_from",
        list,
        ["127.0.0.1", "::1"],
        "Addresses or networks that may read the collector's /metrics (docs/metrics.md).",
    ),
    Setting(
        "collector.sync_s",
        float,
        300.0,
        "Seconds between imports from sacct; 0: only `fairwatt sync`.",
    ),
    Setting(
        "collector.sync_overlap_s",
        int,
        86_400,
        "How far each import looks back before the last one.",
    ),
    Setting(
        "collector.audit_days",
        int,
        7,
        "How many past days are compared with slurmdbd every night (`fairwatt audit`); 0: none.",
    ),
    Setting(
        "collector.audit_hour",
        int,
        3,
        "From which local hour on the nightly comparison is made, 0 to 23.",
    ),
    Setting(
        "store.upkeep_hour",
        int,
        2,
        "From which local hour on the collector checks the store, moves old windows and makes the backup, 0 to 23.",
    ),
    Setting(
        "store.backup_dir",
        str,
        "",
        "Folder of the nightly backups, best on another disk; empty: none are made.",
    ),
    Setting(
        "store.backup_keep_days",
        int,
        14,
        "After so many days a backup is removed; the newest one always stays.",
    ),
    Setting(
        "store.window_days",
        int,
        62,
        "Devices' windows older than so many days are moved to files of a month each beside the store; 0: never.",
    ),
    Setting(
        "store.series_days",
        int,
        0,
        "A month's file is removed when all of it is older than so many days; runs keep their energy; 0: never.",
    ),
    Setting(
        "store.event_days",
        int,
        30,
        "Nodes' events older than so many days are kept as mere numbers once they are settled; 0: as they came.",
    ),
    Setting(
        "store.verify_days",
        int,
        2,
        "The ledger of so many past days is verified every night (`fairwatt ledger verify`); 0: none.",
    ),
    Setting(
        "carbon.zone", str, "DEU", "ISO 3166-1 alpha-3 code of the country in the factor file."
    ),
    Setting(
        "carbon.pue",
        float,
        1.3,
        "Power usage effectiveness of the machine room; a changed one counts from then on.",
    ),
    Setting(
        "carbon.pue_file",
        str,
        "",
        "CSV of the PUE by date (from,pue), in place of carbon.pue; empty: none.",
    ),
    Setting(
        "carbon.factors_file", str, "", "CSV of factors; empty: the file that comes with fairwatt."
    ),
    Setting(
        "carbon.source",
        str,
        "",
        "Service of finer factors that the collector asks: uk, france, entsoe, electricitymaps (docs/carbon.md); empty: none is asked.",
    ),
    Setting(
        "carbon.grid_zone",
        str,
        "",
        "Zone of the finer factors, as the service or the imported file names it; empty: the service's only one, or carbon.zone.",
    ),
    Setting(
        "carbon.method",
        str,
        "",
        "Which method's factors reports use; empty: the service's, else the factor file's.",
    ),
    Setting("carbon.source_url", str, "", "URL of the service; empty: the public one."),
    Setting(
        "carbon.source_key_file",
        str,
        "",
        "File with the service's key, readable by the collector's user alone (mode 0600).",
    ),
    Setting(
        "carbon.fetch_s",
        float,
        10_800.0,
        "Seconds between two questions to the service; 0: only `fairwatt carbon fetch`.",
    ),
    Setting(
        "carbon.contracts_file",
        str,
        "",
        "CSV of the electricity bought, for the market-based figure; empty: that is unknown.",
    ),
    Setting(
        "carbon.embodied_file",
        str,
        "",
        "CSV that adds hardware with its embodied carbon to what fairwatt knows; empty: none.",
    ),
    Setting(
        "report.idle_policy",
        str,
        "reserved",
        "Who gets what held GPUs draw without work: who reserved them (reserved), who works on the board (active), or an owner of its own (none).",
        IDLE_POLICIES,
    ),
    Setting("waste.shortest_s", int, 300, "Runs shorter than so many seconds have no class."),
    Setting("waste.idle_percent", int, 5, "A GPU that is busy for less of the time is idle."),
    Setting(
        "waste.busy_percent", int, 50, "GPUs that are busy for so much of the time are used well."
    ),
    Setting(
        "waste.cpu_full_percent",
        int,
        85,
        "Cores that are busy for so much of the time are what GPUs wait for.",
    ),
    Setting("waste.low_percent", int, 10, "Cores or time used for less were asked far above use."),
    Setting("waste.low_memory_percent", int, 25, "Memory used for less was asked far above use."),
    Setting(
        "waste.largest_slowdown",
        float,
        2.0,
        "A smaller GPU is advised where a run would take at worst so many times as long.",
    ),
    Setting("dashboard.listen", str, "127.0.0.1:8080", "Address and port of the dashboard."),
    Setting(
        "dashboard.identity",
        str,
        "demo",
        "How a visitor is known: personas on loopback alone, or the site's proxy names the user.",
        ("demo", "proxy"),
    ),
    Setting(
        "dashboard.trusted_proxies",
        list,
        [],
        "Addresses or networks of the proxies whose user header counts; all others are refused.",
    ),
    Setting(
        "dashboard.user_header",
        str,
        "X-Remote-User",
        "Header in which the proxy names the user; it must overwrite what a visitor sends.",
    ),
    Setting("dashboard.admins", list, [], "Users who see everything (identity proxy)."),
)
