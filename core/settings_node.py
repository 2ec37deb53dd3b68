# SPDX-License-Identifier: Apache-2.0
"""Settings of the node: agent, hooks, health checks, MIG."""

from __future__ import annotations

from fairwatt.core.setting import Setting

__all__ = ["NODE"]


NODE: tuple[Setting, ...] = (
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
)
