# SPDX-License-Identifier: Apache-2.0
"""The kernel log: XIDs of the kernel alone, each once, whatever else stands there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.prolog.health.read_kernel import KernelLog, Position, xids_of_records
from fairwatt.prolog.health.reading import Xid

BOOT_MS = 1_800_000_000_000
LINE = "3,{seq},5000000,-;NVRM: Xid (PCI:0000:07:00): 79, pid='<unknown>', name=<unknown>, lost"
FOUND = Xid(BOOT_MS + 5000, 79, "0000:07:00")


def xids(*records: str, after: int = -1) -> list[Xid]:
    return xids_of_records(records, BOOT_MS, after)[0]


def log(path: Path, *sequences: int) -> None:
    with path.open("a") as file:
        file.writelines(LINE.format(seq=seq) + "\n" for seq in sequences)


def test_one_record() -> None:
    assert xids(LINE.format(seq=1)) == [FOUND]


@pytest.mark.parametrize(
    ("text", "number", "pci"),
    [
        ("NVRM: Xid (PCI:0000:C7:00): 119, pid=1, Timeout", 119, "0000:c7:00"),
        ("NVRM: Xid (PCI:00000000:07:00.0): 63", 63, "0000:07:00"),
        ("NVRM: Xid (0000:0f:00): 48, GPU at", 48, "0000:0f:00"),
    ],
)
def test_the_forms_that_drivers_write(text: str, number: int, pci: str) -> None:
    assert xids(f"4,1,0,-;{text}") == [Xid(BOOT_MS, number, pci)]


@pytest.mark.parametrize(
    "record",
    [
        "11,1,5000000,-;NVRM: Xid (PCI:0000:07:00): 79, written to /dev/kmsg by root",  # user
        "30,1,5000000,-;NVRM: Xid (PCI:0000:07:00): 79, a daemon's",
        "6,1,5000000,-;NVRM: Xid (PCI:0000:07:00): 79x",
        "6,1,5000000,-;segfault at 0 in NVRM: Xid (PCI:0000:07:00): 79, pid=1",
        " SUBSYSTEM=pci;NVRM: Xid (PCI:0000:07:00): 79,",
        "NVRM: Xid (PCI:0000:07:00): 79, without a head",
        "6,1,5000000,-;NVRM: Xid (PCI:0000:07:00): , 79",
        "6,1,5000000,-;NVRM: Xid (PCI:zz:07:00): 79,",
        "6,1,5000000,-",
        "",
    ],
)
def test_what_is_no_xid_of_the_kernel(record: str) -> None:
    assert xids(record) == []


@given(st.lists(st.text(max_size=200)))
def test_hostile_records_are_harmless(records: list[str]) -> None:
    found, last = xids_of_records([*records, LINE.format(seq=10**9)], BOOT_MS, -1)
    assert FOUND in found
    assert last >= 10**9


def test_a_file_is_read_on_and_a_half_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.touch()
    reader = KernelLog(path, "boot", BOOT_MS, Position())
    log(path, 1)
    assert reader.read() == [FOUND]
    assert reader.read() == []
    with path.open("a") as file:
        file.write(LINE.format(seq=2))
    assert reader.read() == []
    with path.open("ab") as file:
        file.write(b"\n\xff\xfe;broken\n")
    assert reader.read() == [FOUND]
    path.write_text("")
    assert reader.read() == []
    log(path, 3)
    assert reader.read() == [FOUND]


def test_another_process_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    log(path, 1, 2)
    first = KernelLog(path, "boot", BOOT_MS, Position())
    assert len(first.read()) == 2
    assert first.position == Position("boot", 2)
    log(path, 3)
    assert len(KernelLog(path, "boot", BOOT_MS, first.position).read()) == 1
    assert len(KernelLog(path, "another boot", BOOT_MS, first.position).read()) == 3


def test_a_log_that_cannot_be_read_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        KernelLog(tmp_path / "none", "boot", BOOT_MS, Position()).read()


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg cannot be read here")
def test_the_real_device_is_read_to_its_end_without_waiting() -> None:
    reader = KernelLog(Path("/dev/kmsg"), "boot", BOOT_MS, Position())
    try:
        reader.read()
    except PermissionError:
        pytest.skip("/dev/kmsg may not be read here")
    assert reader.read() == []
