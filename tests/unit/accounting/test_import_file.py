# SPDX-License-Identifier: Apache-2.0
"""Files that admins export with sacct, in all their shapes."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.accounting import import_reader
from fairwatt.accounting.carbon.factors import load_factors
from fairwatt.accounting.import_file import FileImport, import_file
from fairwatt.accounting.import_reader import EXPORT_COMMAND, read_export
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.sacct_rows import cells_of, chunks, read_header
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import SlurmError
from tests.unit.accounting.samples import BERLIN, DEFAULTS, dump
from tests.unit.carbon.stored import store_factors, store_pue

FIELDS = list(DEFAULTS)
NASTY = "a|b\nc \"q\" 's' 100%s\n8|x\n\n"


def row(fields=FIELDS, delimiter="|", **changes):
    values = {**DEFAULTS, **changes}
    return delimiter.join(values[name] for name in fields) + "\n"


def export(*rows, fields=FIELDS, delimiter="|"):
    return delimiter.join(fields) + "\n" + "".join(rows)


@pytest.fixture
def db(tmp_path):
    store = open_store(tmp_path / "s.db")
    yield store
    store.close()


@pytest.fixture
def take(db, tmp_path):
    """Import a text."""

    def done(text, **changes):
        path = tmp_path / "export.txt"
        data = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(data)
        return import_file(db, str(path), cluster="here", catalogue=load_catalogue(), zone=BERLIN,
                           now_ts=2000, **changes)  # fmt: skip

    return done


def runs(db, columns="job_id, name"):
    return db.execute(f"SELECT {columns} FROM run ORDER BY job_id, submit_ts").fetchall()


def test_importing_twice_changes_nothing(db, take):
    """E17"""
    text = export(row(), row(JobIDRaw="8", JobID="8"))
    assert take(text) == FileImport(seen=2, changed=2)
    before = dump(db, without=())
    assert take(text) == FileImport(seen=2, changed=0)
    assert dump(db, without=()) == before


def test_what_slurm_said_and_what_the_file_says_are_one_run(db, take):
    take(export(row(State="FAILED")))
    take(export(row(State="FAILED", DBIndex="")))
    assert runs(db, "state") == [("FAILED",)]


@pytest.mark.parametrize("delimiter", ["|", "\x1f", ";|;", ","])
def test_any_order_of_columns_and_any_delimiter(db, take, delimiter):
    fields = [*reversed(FIELDS)]
    names = {"ReqTRES": "", "AllocTRES": "mem=4G"} if delimiter == "," else {}
    take(export(row(fields, delimiter, **names), fields=fields, delimiter=delimiter))
    assert runs(db, "cluster, job_id, user, state, nodelist, name") == [
        ("campus", 7, "ada", "COMPLETED", "gpu01", "train")
    ]


def test_unknown_columns_other_letters_and_a_delimiter_at_the_end(db, take):
    """`sacct --parsable`, and a Container, a Planned and a Flags that we have no use for."""
    fields = ["Flags", *FIELDS, "Planned"]
    line = "|".join({**DEFAULTS, "Flags": "x", "Planned": "0"}[name] for name in fields)
    take("|".join(fields).upper() + "|\n" + line + "|\n")
    assert runs(db) == [(7, "train")]


@pytest.mark.parametrize("place", [0, 2, 12, 24])
def test_a_nasty_name_anywhere_keeps_its_row(db, take, place):
    """E30: its second line looks like the beginning of a row where rows begin with a job."""
    fields = [name for name in FIELDS if name != "JobName"]
    fields.insert(place, "JobName")
    text = export(row(fields, JobName=NASTY), row(fields, JobIDRaw="8", JobID="8"), fields=fields)
    assert take(text).rejected == 0
    assert runs(db, "job_id, name, user") == [(7, NASTY, "ada"), (8, "train", "ada")]


def test_two_free_columns_with_delimiters_leave_the_row_readable(db, take):
    fields = ["Comment", *FIELDS]
    values = {**DEFAULTS, "Comment": "a|b", "JobName": "plain"}
    take(export("|".join(values[name] for name in fields) + "\n", fields=fields))
    assert runs(db) == [(7, "plain")]


def test_a_row_without_a_reading_is_told_and_kept(db, take):
    """One that was cut off does not take the next one along."""
    last = row(JobIDRaw="10", JobID="10", User="a|b")
    done = take(export(row(), "8|8|campus\n", row(JobIDRaw="9", JobID="9"), last))
    assert (done.seen, done.rejected) == (2, 2)
    assert (
        db.execute("SELECT source, reason FROM rejected_row").fetchall()
        == [("file", "no reading with 27 fields")] * 2
    )


def test_steps_and_open_runs_are_counted_and_left(db, take):
    done = take(export(
        row(), row(JobIDRaw="7.batch", JobID="7.batch"), row(JobIDRaw="7.0", JobID="7.0"),
        row(JobIDRaw="9", JobID="9_[0-719%64]", State="PENDING", End="Unknown"),
        row(JobIDRaw="10", JobID="10", State="RUNNING", End="Unknown"),
    ))  # fmt: skip
    assert done == FileImport(seen=1, changed=1, open=2, steps=2)
    assert runs(db, "job_id") == [(7,)]


def test_steps_that_tell_their_memory_are_kept(db, take):
    """An export with steps and TRESUsageInTot: the largest step is the run's peak."""
    fields = [*FIELDS[:-1], "TRESUsageInTot", FIELDS[-1]]
    used = {"7.batch": "cpu=1,mem=2147483648", "7.0": "cpu=1,mem=1G", "7.1": "cpu=1"}
    steps = [row(fields, JobIDRaw=name, JobID=name, TRESUsageInTot=text)
             for name, text in used.items()]  # fmt: skip
    done = take(export(row(fields, TRESUsageInTot=""), *steps, fields=fields))
    assert done == FileImport(seen=1, changed=1, steps=3, peaks=2)
    assert db.execute("SELECT peak_mib FROM run_memory").fetchall() == [(2048,)]


def test_times_with_their_zone(db, take):
    """DST: both ends print 02:30 in Berlin; E13."""
    start, end = "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"
    submit = "2026-10-25T02:00:00+0200"
    take(export(row(Submit=submit, Eligible="Unknown", Start=start, End=end)))
    assert runs(db, "submit_ts, eligible_ts, start_ts, end_ts") == [
        (1792886400, None, 1792888200, 1792891800)
    ]


def test_local_times_are_refused_with_the_remedy(db, take):
    """E14"""
    with pytest.raises(SlurmError) as caught:
        take(export(row(), row(JobIDRaw="8", JobID="8", Start="2026-10-25T02:30:00")))
    text = str(caught.value)
    assert "column Start of job 8: a local time without its zone" in text
    assert "got '2026-10-25T02:30:00'" in text
    assert "SLURM_TIME_FORMAT=%s" in text
    assert runs(db) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not begin with the header"),
        ("no header here\n", "lacks the columns JobIDRaw"),
        ("JobID|State\n7|FAILED\n", "lacks the columns JobIDRaw, Submit, Start"),
        (b"\x00\x01\x02", "does not begin with the header"),
    ],
)
def test_what_is_no_export(take, text, problem):
    with pytest.raises(SlurmError, match=problem) as caught:
        take(text)
    assert EXPORT_COMMAND in str(caught.value)


def test_a_file_that_is_not_there(db, tmp_path):
    with pytest.raises(SlurmError, match="No such file"):
        import_file(db, str(tmp_path / "x"), cluster="c", catalogue=load_catalogue(), zone=BERLIN,
                    now_ts=0)  # fmt: skip


def test_gzip_is_unpacked(db, take):
    assert take(gzip.compress(export(row()).encode())).seen == 1


def test_bytes_that_are_no_utf8_and_lines_of_windows(db, take):
    text = export(row(JobName="caf"), row(JobIDRaw="8", JobID="8")).replace("\n", "\r\n")
    take(text.encode().replace(b"caf", b"caf\xe9"))
    assert runs(db) == [(7, "caf\ufffd"), (8, "train")]


def test_a_file_without_cluster_is_of_the_one_named(db, take):
    fields = [name for name in FIELDS if name != "Cluster"]
    take(export(row(fields), fields=fields))
    assert runs(db, "cluster") == [("here",)]


@given(
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=6),
    block=st.integers(1, 400),
)
def test_blocks_of_any_size_give_the_same_rows(names, block):
    """However the file falls into blocks, and whatever users call their jobs."""
    delimiter = "\x1f-\x1f"
    fields = [name for name in FIELDS if name != "JobName"]
    fields.insert(5, "JobName")
    text = export(
        *(row(fields, delimiter, JobIDRaw=str(n + 1), JobID=str(n + 1), JobName=name)
          for n, name in enumerate(names)),
        fields=fields, delimiter=delimiter,
    ).encode()  # fmt: skip
    got, places = [], [0]
    for part in read_export(Trickle(text, block), "x", "c"):
        got += part.columns["name"]
        places.append(part.place)
    assert got == names
    assert places == sorted(places)
    assert places[-1] == len(text)


class Trickle(io.BytesIO):
    """A file that gives a few bytes at a time, but its header at once."""

    def __init__(self, data, block):
        super().__init__(data)
        self.block = block

    def read(self, size=-1):
        return super().read(400 if self.tell() == 0 else self.block)


@given(st.integers(0, 40))
def test_going_on_at_a_place_gives_the_rest(number):
    text = export(*(row(JobIDRaw=str(n), JobID=str(n)) for n in range(1, 41))).encode()
    places = [0, *(part.place for part in read_export(Trickle(text, 500), "x", "c"))]
    place = places[min(number, len(places) - 1)]
    whole = [
        job for part in read_export(io.BytesIO(text), "x", "c") for job in part.columns["job_id"]
    ]
    rest = [
        job
        for part in read_export(Trickle(text, 100), "x", "c", place)
        for job in part.columns["job_id"]
    ]
    done = text[: place or len(text.split(b"\n")[0]) + 1].count(b"\n") - 1
    assert rest == whole[done:]


KILLED = """
import os, signal, sys
from zoneinfo import ZoneInfo
from fairwatt.accounting import import_file as it
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import open_store
from fairwatt.core.catalogue import load_catalogue
it.ROWS_PER_WRITE = 1
kill_at = int(sys.argv[3])
steps = 0
def stop(_frame, event, _arg):
    global steps
    steps += 1
    if steps == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
db = open_store(sys.argv[1])
sys.setprofile(stop)
done = it.import_file(db, sys.argv[2], cluster="c", catalogue=load_catalogue(),
                      zone=ZoneInfo("UTC"), now_ts=2000)
print(done.resumed_at)
"""


def test_killed_anywhere_it_goes_on_and_ends_the_same(tmp_path):
    """SIGKILL at seeded steps of the import; then the store is that of an undisturbed one."""
    path = tmp_path / "e.txt"
    jobs = range(1, 4001)
    path.write_text(export(*(row(JobIDRaw=str(n), JobID=str(n), State="REQUEUED" if n % 9 else "X")
                             for n in jobs)))  # fmt: skip

    def attempt(store, kill_at):
        argv = [sys.executable, "-c", KILLED, str(store), str(path), str(kill_at)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    assert attempt(tmp_path / "calm.db", 0).returncode == 0
    ended = [attempt(tmp_path / "killed.db", kill_at).returncode for kill_at in (3_000, 30_000)]
    assert ended == [-signal.SIGKILL] * 2
    done = attempt(tmp_path / "killed.db", 0)
    assert done.returncode == 0, done.stderr
    calm, killed = open_store(tmp_path / "calm.db"), open_store(tmp_path / "killed.db")
    skip = ("_sqlite_migrations",)
    assert dump(killed, without=skip) == dump(calm, without=skip)
    calm.close()
    killed.close()


def test_standard_input_is_read_here(db, monkeypatch):
    class Standard:
        buffer = io.BytesIO(export(row()).encode())

    monkeypatch.setattr("sys.stdin", Standard)
    done = import_file(db, "-", cluster="c", catalogue=load_catalogue(), zone=BERLIN, now_ts=0)
    assert done.seen == 1


def test_progress_is_told_in_bytes_of_the_file(take):
    told = []
    take(export(row()), on_progress=told.append)
    assert told == [len(export(row()))]


def test_a_header_tells_its_delimiter():
    assert read_header("JobIDRaw;|;JobName").delimiter == ";|;"
    with pytest.raises(SlurmError, match="no header"):
        read_header("JobID")


def test_a_row_ends_where_the_next_begins():
    layout = read_header("JobIDRaw|JobName")
    assert list(chunks(["1|a", "b", "2|c", ""], layout)) == ["1|a\nb", "2|c\n"]
    assert cells_of("1|a|b\nc", layout) == ["1", "a|b\nc"]


def test_the_command_tells_what_it_did(tmp_path, monkeypatch):
    from click.testing import CliRunner

    from fairwatt.accounting.import_commands import import_

    (tmp_path / "e.txt").write_text(export(row(), row(JobIDRaw="7.0", JobID="7.0")))
    (tmp_path / "f.toml").write_text(f'[collector]\ndatabase = "{tmp_path}/s.db"\n')
    monkeypatch.setenv("FAIRWATT_CONFIG", str(tmp_path / "f.toml"))
    argv = ["sacct", str(tmp_path / "e.txt")]
    done = CliRunner().invoke(import_, argv)
    assert done.output.startswith("1 runs read, 1 new or changed, 0 left out (")
    assert "1 rows of job steps passed over" in done.output
    again = CliRunner().invoke(import_, [*argv, "--json"])
    assert json.loads(again.output)["changed"] == 0


N5000 = "9" * 5000


@pytest.mark.parametrize(
    "changes",
    [
        {"ExitCode": "0:999999999999999999"},
        {"Suspended": f"{'9' * 20}-00:00:00"},
        {"Suspended": f"{N5000}-00:00:00"},
        {"TotalCPU": f"{N5000}:00:00"},
        {"TotalCPU": f"{'9' * 30}-00:00:00", "ElapsedRaw": "9" * 18, "NCPUS": "9" * 18},
        {"DBIndex": N5000},
        {"ConsumedEnergyRaw": N5000},
        {"NCPUS": N5000},
        {"NCPUS": "9" * 18},
        {"NNodes": "4294967294"},
        {"TimelimitRaw": N5000},
        {"AllocTRES": "cpu=4,gres/gpu=999999999999999999,gres/gpu:a100=999999999999999999"},
        {"AllocTRES": "cpu=4,mem=99999999999999999999P,billing=99999999999999999999"},
    ],
)
def test_an_impossible_number_is_unknown_and_the_rest_goes_on(db, take, changes):
    """Neither the import nor a later sum stumbles over it."""
    done = take(export(row(**changes), row(JobIDRaw="8", JobID="8", NCPUS="4")))
    assert done == FileImport(seen=2, changed=2)
    with transaction(db) as connection:
        store_factors(connection, load_factors())
        store_pue(connection, 1.2, 0)
    settle(db, "campus", BERLIN)
    assert rollup(db, "campus", BERLIN, "DEU", 2000) == 1
    shown = runs(db, "exit_signal, suspended_s, cpu_time_s, slurm_energy_j, timelimit_s")[0]
    assert all(value is None or value < 2**32 for value in shown)
    # Two runs of at most 4 CPUs and 100 s on one day.
    assert db.execute("SELECT sum(cpu_s) <= 800 FROM usage_daily").fetchone() == (1,)


@pytest.mark.parametrize("shown", [f"{N5000}_1", f"{'9' * 25}_1", f"3_{'9' * 25}"])
def test_a_job_id_that_no_slurm_gives_is_left_out(db, take, shown):
    assert take(export(row(JobID=shown), row(JobIDRaw="8", JobID="8"))).rejected == 1
    assert runs(db, "job_id") == [(8,)]


def many(count):
    return export(*(row(JobIDRaw=str(n), JobID=str(n), JobName=f"{n * n:x}")
                    for n in range(1, count + 1)))  # fmt: skip


def test_joined_exports_are_read_to_the_last(db, take):
    """`cat a.gz b.gz`: all members; and a header in the middle ends no job's name."""
    joined = gzip.compress(export(row()).encode()) + gzip.compress(
        export(row(JobIDRaw="8", JobID="8")).encode()
    )
    assert take(joined) == FileImport(seen=2, changed=2)
    assert runs(db) == [(7, "train"), (8, "train")]


@pytest.mark.parametrize("cut", [-4, -300])
def test_a_gzip_file_that_is_cut_off_is_told(take, cut):
    with pytest.raises(SlurmError, match=r"export.txt, byte \d+: cannot be read to its end"):
        take(gzip.compress(many(300).encode())[:cut])


def test_a_damaged_gzip_file_is_told(take):
    packed = bytearray(gzip.compress(many(300).encode()))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(SlurmError, match="cannot be read to its end"):
        take(bytes(packed))


@pytest.mark.parametrize("rest", ["x" * 3_000_000, "y\n" * 1_500_000], ids=["one", "many"])
def test_a_file_without_rows_ends_soon(monkeypatch, rest):
    """Neither one line without end, nor millions of lines that are no rows."""
    monkeypatch.setattr(import_reader, "LONGEST_ROW_BYTES", 1 << 20)
    file = io.BytesIO((export(row())[:-1] + rest).encode())
    began = time.process_time()
    with pytest.raises(SlurmError, match="a row is longer than 1 MiB"):
        list(read_export(file, "endless", "here"))
    assert time.process_time() - began < 5


def test_a_gzip_bomb_does_not_fill_the_memory(tmp_path):
    packed = gzip.compress(export(row())[:-1].encode() + bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(SlurmError, match="a row is longer"):
        list(read_export(io.BytesIO(packed), "bomb", "here"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 48 << 20


def test_a_column_that_is_there_twice_is_refused(take):
    with pytest.raises(SlurmError, match="line 1: has the columns State twice"):
        take(export(row()[:-1] + "|FAILED\n", fields=[*FIELDS, "State"]))


def test_a_byte_order_mark_is_no_part_of_the_header(db, take):
    assert take("\ufeff" + export(row())) == FileImport(seen=1, changed=1)


def test_a_row_without_a_cluster_is_of_the_sites(db, take):
    take(export(row(Cluster="")))
    assert runs(db, "cluster") == [("here",)]


def test_a_pipe_is_read_to_its_end(db, tmp_path):
    """As of `fairwatt import sacct <(zcat FILE)`: it can be opened once only."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_text(many(3)))
    writer.start()
    done = import_file(db, str(fifo), cluster="here", catalogue=load_catalogue(), zone=BERLIN,
                       now_ts=2000)  # fmt: skip
    writer.join()
    assert done == FileImport(seen=3, changed=3)


def test_a_file_that_changes_while_it_is_read_is_told(db, take, tmp_path):
    path = tmp_path / "export.txt"

    def grow(_place):
        path.write_text(path.read_text() + row(JobIDRaw="9", JobID="9"))

    with pytest.raises(SlurmError, match="changed while it was read"):
        take(many(3), on_progress=grow)
    assert take(path.read_text()).seen == 4
    assert db.execute("SELECT count(*) FROM meta WHERE key LIKE 'import.%'").fetchone() == (0,)


def test_an_interrupted_import_goes_on_only_for_the_same_cluster(db, tmp_path):
    """The wrong one was named, and the admin began anew with the right one."""
    fields = [name for name in FIELDS if name != "Cluster"]
    path = tmp_path / "export.txt"
    path.write_text(
        export(*(row(fields, JobIDRaw=str(n), JobID=str(n)) for n in range(1, 12_001)),
               fields=fields)
    )  # fmt: skip

    def stop(_place):
        raise KeyboardInterrupt

    common = {"catalogue": load_catalogue(), "zone": BERLIN, "now_ts": 2000}
    with pytest.raises(KeyboardInterrupt):
        import_file(db, str(path), cluster="wrong", on_progress=stop, **common)
    done = import_file(db, str(path), cluster="right", **common)
    assert (done.seen, done.resumed_at) == (12_000, 0)
