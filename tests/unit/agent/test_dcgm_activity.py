# SPDX-License-Identifier: Apache-2.0
"""Activity from a dcgm-exporter's page: boards, slices, and pages that are wrong."""

from __future__ import annotations

import time

import pytest

from fairwatt.accounting.agent.dcgm_activity import (
    MOST_ROWS,
    OLDEST_S,
    Activity,
    DcgmActivity,
    dcgm_place,
    parse_activity,
)
from fairwatt.core.errors import ConfigError
from tests.fakes.bmc_server import bmc_server, page
from tests.unit.agent.keeper_bench import board

HEAD = """\
# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active.
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
"""


def row(value: str, metric: str = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", **labels: str) -> str:
    named = {"gpu": "0", "pci_bus_id": "00000000:07:00.0", "modelName": "NVIDIA A100", **labels}
    return (
        metric + "{" + ",".join(f'{key}="{text}"' for key, text in named.items()) + f"}} {value}\n"
    )


SLICE = {"UUID": "GPU-1", "GPU_I_PROFILE": "1g.5gb", "GPU_I_ID": "0"}
PAGE = (
    HEAD
    + row("0.250000", **SLICE, hpc_job="11")
    + row("0.250000", **SLICE, hpc_job="12")
    + row("1.000000 1764525724000", **SLICE | {"GPU_I_ID": "1"}, Hostname='n\\"} 9')
    + row("0.5004", UUID="GPU-2")
    + row("0.9", "DCGM_FI_PROF_SM_ACTIVE", UUID="GPU-2")
)


def test_rows_of_boards_and_slices_each_once() -> None:
    """With a job map a row comes once for each job: adding them would count twice."""
    assert parse_activity(PAGE.encode()) == [
        Activity("GPU-1", 0, 250),
        Activity("GPU-1", 1, 1000),
        Activity("GPU-2", None, 500),
    ]


@pytest.mark.parametrize(
    "rest",
    ['{UUID="GPU-1"} NaN', '{UUID="GPU-1"} -0.1', '{UUID="GPU-1"} 9223372036854775794',
     '{UUID="GPU-1"} x', '{UUID="GPU-1"} ', '{UUID="GPU-1"', '{gpu="0"} 0.5', '{UUID=""} 0.5',
     '{UUID="GPU-1",GPU_I_ID="x"} 0.5', '{UUID="GPU-1",GPU_I_ID="²"} 0.5', "{} 0.5",
     '{UUID="GPU-1",GPU_I_ID="1234567"} 0.5'],
)  # fmt: skip
def test_what_cannot_be_is_left_out(rest) -> None:
    assert parse_activity(f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{rest}\n".encode()) == []


def test_the_newest_page_by_device_and_slice() -> None:
    now = [100.0]
    cut, whole = board("GPU-1", 1, 2, 1), board("GPU-2")
    with bmc_server() as server:
        server.pages["/metrics"] = page(PAGE.encode())
        dcgm = DcgmActivity(dcgm_place(server.url + "/metrics"), clock=lambda: now[0])
        assert dcgm.newest([cut, whole]) == {}  # asked, and the answer is not waited for
        dcgm.fetch()
        known = {"GPU-1": {"MIG-0": 250, "MIG-1": 1000}, "GPU-2": {"": 500}}
        assert dcgm.newest([cut, whole]) == known
        now[0] += OLDEST_S + 1
        assert dcgm.newest([cut, whole]) == {}
    dcgm._thread.join(10)


@pytest.mark.parametrize(
    "answer", [page(b"x" * 10), page({}, "500 Oops"), b"", page(b"\xff" * 100)]
)
def test_a_page_without_activity_is_told_once_and_leaves_all_unknown(answer, caplog) -> None:
    with bmc_server() as server:
        server.pages["/metrics"] = answer
        dcgm = DcgmActivity(dcgm_place(server.url + "/metrics"))
        dcgm.fetch()
        dcgm.fetch()
        assert dcgm.newest([board("GPU-2")]) == {}
        dcgm._thread.join(10)
        assert len(caplog.records) == 1
        server.pages["/metrics"] = page(PAGE.encode())
        dcgm.fetch()
        assert "answers again" in caplog.text


def test_an_exporter_that_is_away_is_no_error() -> None:
    with bmc_server() as server:
        url = server.url
    dcgm = DcgmActivity(dcgm_place(url + "/metrics"))
    dcgm.fetch()
    assert dcgm.newest([board("GPU-2")]) == {}
    dcgm._thread.join(10)


@pytest.mark.parametrize(
    "url", ["http://gpu07:9400/metrics", "https://127.0.0.1/metrics", "127.0.0.1:9400"]
)
def test_only_this_host_is_asked(url) -> None:
    with pytest.raises(ConfigError, match=r"agent\.dcgm_url"):
        dcgm_place(url)


def test_no_setting_no_exporter() -> None:
    assert dcgm_place("") is None


@pytest.mark.parametrize("sign", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_label_cannot_bring_a_row_of_its_own(sign) -> None:
    """Python takes these for ends of lines; the format of the page does not."""
    job = f'x{sign}DCGM_FI_PROF_GR_ENGINE_ACTIVE{{UUID=\\"GPU-1\\"}} 0.0{sign}'
    page = row("0.75", UUID="GPU-1", hpc_job=job)
    assert parse_activity(page.encode()) == [Activity("GPU-1", None, 750)]


@pytest.mark.parametrize(
    "label", ["a" * 4_000_000, 'a="' * 400_000, '\\"' * 2_000_000, "a " * 2_000_000]
)
def test_a_strange_page_takes_no_time(label) -> None:
    """Python's regular expressions hold up all other threads, hooks' answers too."""
    page = f"{HEAD}DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{label}}} 0.5\n" + row("0.5", UUID="GPU-2")
    shorter = row("0.5", UUID="GPU-3", x=label[:7_000])
    began_s = time.process_time()
    found = parse_activity((page + shorter).encode())
    assert time.process_time() - began_s < 1.0
    assert Activity("GPU-2", None, 500) in found
    assert len(parse_activity("".join(row("1", UUID=f"G{n}") for n in range(9_000)).encode())) == (
        MOST_ROWS
    )
