# SPDX-License-Identifier: Apache-2.0
"""Every setting of fairwatt: its key, type, default and what it means.

One table serves the loader, the documentation and the test that compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["IDLE_POLICIES", "SETTINGS", "Setting"]


@dataclass(frozen=True)
class Setting:
    """One setting: dotted key, type (bool, int, float, str, list of int or str), default, doc."""

    key: str
    type: type
    default: Any
    doc: str
    choices: tuple[str, ...] = ()


HERE = ("detect", "yes", "no")
IDLE_POLICIES = ("reserved", "active", "none")
SLURM_BACKENDS = ("auto", "cli", "pyslurm")

SETTINGS: tuple[Setting, ...] = (
    Setting("site.cluster", str, "cluster", "Cluster name as in slurm.conf's ClusterName."),
    Setting("site.timezone", str, "UTC", "IANA zone in which days and months are cut."),
    Setting(
        "site.slurm_conf", str, "", "slurm.conf to use; empty: SLURM_CONF or Slurm's own default."
    ),
    Setting(
        "site.slurm_backend",
        str,
        "auto",
        "How Slurm's nodes and partitions are read: by pyslurm, by its command line (cli), or (auto) by pyslurm where it is usable.",
        SLURM_BACKENDS,
    ),
    Setting("site.munge_socket", str, "", "munged's socket; empty: munge's own default."),
    Setting(
        "site.catalogue_dir", str, "", "Folder of *.toml files that add GPU models or profiles."
    ),
    Setting(
        "host.policyd", str, "detect", "Whether `fairwatt doctor` expects policyd here.", HERE
    ),
    Setting(
        "host.agent", str, "detect", "Whether `fairwatt doctor` expects the agent here.", HERE
    ),
    Setting(
        "host.collector",
        str,
        "detect",
        "Whether `fairwatt doctor` expects the collector here.",
        HERE,
    ),
    Setting(
        "host.dashboard",
        str,
        "detect",
        "Whether `fairwatt doctor` expects the dashboard here; detect: it does not.",
        HERE,
    ),
    Setting(
        "policyd.socket",
        str,
        "/run/fairwatt/policyd.sock",
        "Unix socket that the submit hook asks.",
    ),
    Setting(
        "policyd.refresh_s", int, 30, "How often the cluster's facts are read again, in seconds."
    ),
    Setting(
        "policyd.memo_entries",
        int,
        4096,
        "How many answers policyd keeps for equal requests; 0: each is judged anew.",
    ),
    Setting(
        "policyd.reuse_s",
        int,
        30,
        "How long the submit hook may give equal jobs an answer again by itself, while policyd lives"
        " and neither policy nor cluster changes, in seconds (at most 60); 0: it always asks.",
    ),
    Setting(
        "policyd.policy_file",
        str,
        "/etc/fairwatt/policy.toml",
        "Which rules run, with their options (docs/rules.md); none at the default: the defaults.",
    ),
    Setting(
        "policyd.journal_dir",
        str,
        "/var/spool/fairwatt/decisions",
        "Folder of decisions on their way to the collector at agent.collector_url; empty: none are kept.",
    ),
    Setting(
        "policyd.journal_max_mib",
        int,
        256,
        "The most these may take on disk, in MiB; what comes then is counted as not recorded.",
    ),
    Setting(
        "updater.wait_s",
        int,
        1800,
        "How long a job waits for each kind of GPU that would do before it may get the next one.",
    ),
    Setting("updater.interval_s", float, 60.0, "Seconds between two looks at the queue."),
    Setting(
        "updater.max_changes",
        int,
        20,
        "The most jobs changed at one look; each change takes slurmctld's write lock.",
    ),
    Setting("agent.node", str, "", "Slurm node name of this host; empty: the short host name."),
    Setting(
        "agent.socket", str, "/run/fairwatt/agent.sock", "Unix socket that prolog and epilog ask."
    ),
    Setting(
        "agent.job_dir",
        str,
        "/run/fairwatt/jobs",
        "Folder with each running job's devices, for TaskProlog.",
    ),
    Setting(
        "agent.inbox_dir",
        str,
        "/var/spool/fairwatt/inbox",
        "Where hooks leave events while the agent is away.",
    ),
    Setting("agent.spool_dir", str, "/var/spool/fairwatt", "Journal of events not yet delivered."),
    Setting(
        "agent.gres_conf",
        str,
        "",
        "gres.conf to read device files from; empty: beside slurm.conf.",
    ),
    Setting(
        "agent.hook_dir",
        str,
        "",
        "Folder of the hooks that slurm.conf names, for `fairwatt doctor`; empty: not checked.",
    ),
    Setting(
        "agent.dcgm_job_dir",
        str,
        "",
        "Folder in which dcgm-exporter looks for each GPU's jobs (its --hpc-job-mapping-dir);"
        " empty: no such files are written.",
    ),
    Setting(
        "agent.spool_max_mib",
        int,
        512,
        "The most that events not yet delivered may take on disk, in MiB; beyond it the oldest windows are merged, no energy and no run is lost; 0: no limit.",
    ),
    Setting(
        "agent.metrics_file",
        str,
        "",
        "File of the agent's metrics (docs/metrics.md), in a folder that node_exporter's textfile collector reads; empty: none.",
    ),
    Setting("agent.proc_root", str, "/proc", "Where /proc is (tests use a folder)."),
    Setting("agent.sys_root", str, "/sys", "Where /sys is (tests use a folder)."),
    Setting(
        "agent.host_sources",
        list,
        ["rapl"],
        "What measures CPUs, DRAM and the node, the preferred first: rapl, pm_counters, ipmi, redfish or a site's own; []: only GPUs are measured.",
    ),
    Setting(
        "agent.bmc_period_s",
        float,
        30.0,
        "Seconds between two questions to the BMC (ipmi, redfish), which answers slowly; at most 45.",
    ),
    Setting("agent.bmc_timeout_s", float, 10.0, "How long the BMC may take to answer."),
    Setting(
        "agent.ipmi_command",
        list,
        ["ipmi-dcmi", "--get-system-power-statistics"],
        'Prints the node\'s power by IPMI DCMI: freeipmi\'s, or ["ipmitool", "dcmi", "power", "reading"].',
    ),
    Setting(
        "agent.redfish_url",
        str,
        "",
        "Where this node's BMC answers Redfish, as https://bmc.example; plain http on loopback only.",
    ),
    Setting(
        "agent.redfish_chassis",
        list,
        [],
        "Which of the BMC's chassis is the node, by id; several are added up; []: the only one that tells its power.",
    ),
    Setting(
        "agent.redfish_credentials",
        str,
        "/etc/fairwatt/redfish.credentials",
        "File with user and password of the BMC, a line each, readable by its owner alone.",
    ),
    Setting(
        "agent.redfish_ca",
        str,
        "",
        "File of the certificates that the BMC's must be signed by; empty: the system's.",
    ),
    Setting(
        "agent.redfish_verify",
        bool,
        True,
        "Whether the BMC's certificate is checked; false: anyone between may read the password.",
    ),
    Setting(
        "agent.dcgm_url",
        str,
        "",
        "A dcgm-exporter on loopback whose activity of GPUs and slices is used, as http://127.0.0.1:9400/metrics; empty: none.",
    ),
    Setting(
        "agent.process_utilisation",
        bool,
        False,
        "Whether the driver is asked for each process's part of GPUs that jobs share without MIG: 50 to 100 ms a GPU at each sample.",
    ),
    Setting(
        "agent.host_idle_w",
        list,
        [],
        "Idle watts of a CPU package and of its DRAM, as cpu=45 and dram=6; else the least that was seen while no job ran.",
    ),
    Setting(
        "agent.node_power_has_gpus",
        bool,
        True,
        "Whether the node's own power meter (ipmi, redfish) has the GPUs' power in it; some have not.",
    ),
    Setting("agent.collector_url", str, "http://127.0.0.1:8181", "Where events are sent."),
    Setting("agent.sample_s", float, 10.0, "Seconds between samples of power and utilisation."),
    Setting("agent.window_s", int, 300, "Longest window of the ledger, in seconds."),
    Setting("agent.ship_s", float, 300.0, "Seconds between deliveries to the collector."),
    Setting(
        "epilog.clean",
        bool,
        True,
        "Whether Epilog ends processes of the job that Slurm left behind, the job's alone.",
    ),
    Setting(
        "epilog.temp_dir",
        str,
        "",
        "Folder of a job that Epilog removes, %j for the job id and %u for the user's name, as"
        " /scratch/%u/job.%j; empty: none.",
    ),
    Setting(
        "health.enabled",
        bool,
        True,
        "Whether the agent checks this node's health (docs/health.md) in a process of its own.",
    ),
    Setting(
        "health.file",
        str,
        "/etc/fairwatt/health.toml",
        "The site's changes to the checks; none at the default: fairwatt's own.",
    ),
    Setting(
        "health.state_file",
        str,
        "/run/fairwatt/health.json",
        "Where the newest verdict is kept, for `fairwatt health`.",
    ),
    Setting(
        "health.metrics_file",
        str,
        "",
        "File of the same as Prometheus metrics, in a folder that node_exporter's textfile collector reads; empty: none.",
    ),
    Setting(
        "health.dir",
        str,
        "/var/spool/fairwatt/health",
        "Folder of the recorded baseline and of what the checks remember.",
    ),
    Setting("health.kmsg", str, "/dev/kmsg", "The kernel's log (tests use a file)."),
    Setting(
        "health.drain",
        bool,
        True,
        "Whether a proven hardware fault drains the node; false: fairwatt never changes a node.",
    ),
    Setting(
        "health.prolog_fails",
        bool,
        True,
        "Whether the prolog stops a job whose own GPU has a proven hardware fault; Slurm then drains the node and holds the job.",
    ),
    Setting(
        "health.max_drains_per_hour",
        int,
        2,
        "Nodes of the cluster that may be drained by fairwatt within an hour; beyond it there are only alerts.",
    ),
    Setting(
        "health.confirm_rounds",
        int,
        2,
        "So many rounds in a row must see a fault before the node is drained.",
    ),
    Setting(
        "health.heal_rounds",
        int,
        3,
        "So many rounds in a row must pass before a drain of fairwatt's own is taken back.",
    ),
    Setting(
        "health.hang_s",
        float,
        60.0,
        "After so many seconds without an answer of the driver the checking process is started anew; the verdict is unknown.",
    ),
    Setting(
        "mig.file",
        str,
        "/etc/fairwatt/mig.toml",
        "Which MIG layouts nodes have, and what `fairwatt mig plan` may propose (docs/mig.md).",
    ),
    Setting(
        "mig.state_dir",
        str,
        "/var/lib/fairwatt/mig",
        "Journal, lock and backups of `fairwatt mig apply` on a node.",
    ),
    Setting(
        "mig.stop_command",
        list,
        ["systemctl", "stop", "slurmd"],
        "Ends slurmd on this node, also what else holds its GPUs; success where none runs.",
    ),
    Setting(
        "mig.start_command",
        list,
        ["systemctl", "start", "slurmd"],
        "Starts slurmd, and what else was stopped; success where it runs.",
    ),
    Setting(
        "mig.reconfigure_command",
        list,
        ["scontrol", "reconfigure"],
        "Makes slurmctld take a changed Gres=; before Slurm 23.11 only a restart of it does (docs/mig.md).",
    ),
    Setting(
        "mig.gres_command",
        list,
        [],
        "Puts a node's Gres= where slurmctld reads it, called with NODE GRES; empty: slurm.conf is edited here.",
    ),
    Setting(
        "mig.slurmd_options",
        str,
        "/etc/default/slurmd",
        "File with the options of a dynamic node's slurmd (-Z --conf 'Gres=…').",
    ),
    Setting(
        "mig.idle_wait_s",
        float,
        3600.0,
        "How long `fairwatt mig apply` waits for the jobs of a drained node to end.",
    ),
    Setting(
        "mig.start_wait_s",
        float,
        60.0,
        "How long `fairwatt mig apply` waits for slurmctld and slurmd to agree on the new GPUs.",
    ),
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
