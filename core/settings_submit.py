# SPDX-License-Identifier: Apache-2.0
"""Settings of the site, its hosts, policyd and the updater."""

from __future__ import annotations

from fairwatt.core.setting import Setting

__all__ = ["SUBMIT"]

HERE = ("detect", "yes", "no")
SLURM_BACKENDS = ("auto", "cli", "pyslurm")

SUBMIT: tuple[Setting, ...] = (
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
)
