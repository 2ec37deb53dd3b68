# SPDX-License-Identifier: Apache-2.0
"""The fake device on a booted GPU node: library, control file, /proc entries, a program to use it.

These are the lab's, not the roles'. A drop-in tells the agent's unit of the library.
"""

from __future__ import annotations

from pathlib import Path

from tests.ansible.booted import Node
from tests.ansible.node_files import File, Files
from tests.fakes import gpu_load
from tests.fakes.nvml_control import LIBRARY, FakeNvml
from tests.lab.devices import make_proc
from tests.lab.layout import NodeLayout
from tests.lab.nodes import add_gpu

__all__ = ["NVML_ENV", "PROC_ROOT", "fake_gpu_files", "fake_nvml", "prepare_gpus"]

PROC_ROOT = "/opt/lab/proc"
"""For `agent.proc_root`: no file can be put into a real /proc."""
_CONTROL = "/opt/lab/nvml.control"
NVML_ENV = {"LD_LIBRARY_PATH": "/opt/lab/lib", "FAIRWATT_FAKE_NVML": _CONTROL}
"""The variables with which a program on the node finds the fake device."""
_DROP_IN = "[Service]\n" + "".join(f"Environment={k}={v}\n" for k, v in NVML_ENV.items())
_USE_GPU = f"""#!/bin/sh
# use-gpu WATTS SECONDS: uses the devices that this job holds on this node.
watts=$1 seconds=$2
set --
while IFS="$(printf '\\t')" read -r position kind uuid; do set -- "$@" --uuid "$uuid"; done \\
    <"/run/fairwatt/jobs/$SLURM_JOB_ID"
exec /usr/bin/python3 /opt/lab/gpu_load.py --control {_CONTROL} "$@" \\
    --watts "$watts" --seconds "$seconds"
"""


def fake_gpu_files() -> Files:
    """The files of a GPU node, the agent's drop-in included."""
    return {
        "/opt/lab/lib/libnvidia-ml.so.1": File(LIBRARY.read_bytes()),
        "/opt/lab/gpu_load.py": File(Path(gpu_load.__file__).read_bytes()),
        "/opt/lab/use-gpu": File(_USE_GPU, 0o755),
        "/etc/systemd/system/fairwatt-agent.service.d/fake-nvml.conf": File(_DROP_IN),
    }


def prepare_gpus(layout: NodeLayout, root: Path) -> None:
    """Write the node's boards into the root before it boots."""
    make_proc(root / PROC_ROOT.lstrip("/"), layout)
    control = root / _CONTROL.lstrip("/")
    fake = FakeNvml(control)
    for gpu in layout.gpus:
        add_gpu(fake, gpu)
    control.chmod(0o666)  # jobs "use" their devices by writing into it


def fake_nvml(node: Node) -> FakeNvml:
    """The control and the truth of a running node's devices."""
    return FakeNvml(node.path(_CONTROL))
