# SPDX-License-Identifier: Apache-2.0
"""`fairwatt carbon`: what an admin types, and what comes back."""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairwatt.accounting.carbon.commands import carbon
from fairwatt.accounting.carbon.fetch import fetch
from fairwatt.accounting.store import open_store
from fairwatt.core.errors import ConfigError, NotFoundError, SourceError
from tests.unit.carbon.grid_service import GridService

HEAD = "# source: a book\n# licence: CC0\n# method: measured\n# retrieved: 2026-01-01\n"
FACTORS = f"{HEAD}zone,from,until,g_per_kwh\nDE,2026-01-05T00:00Z,2026-01-05T01:00Z,123\n"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A configured accounting host; `site(key="value")` changes settings of section carbon."""

    def write(**carbon_settings):
        lines = [
            "[site]", 'cluster = "campus"', "[collector]", f'database = "{tmp_path}/store.db"',
            "[carbon]",
            *(f"{key} = {json.dumps(value)}" for key, value in carbon_settings.items()),
        ]  # fmt: skip
        (tmp_path / "fairwatt.toml").write_text("\n".join(lines) + "\n")

    write()
    monkeypatch.setenv("FAIRWATT_CONFIG", str(tmp_path / "fairwatt.toml"))
    return write


def run(*words):
    result = CliRunner().invoke(carbon, words, catch_exceptions=True)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def listed(*words):
    tables = json.loads(run("list", "--json", *words).output)
    return {name: table["rows"] for name, table in tables.items()}


def test_an_import_twice_is_once(site, tmp_path):
    (tmp_path / "f.csv").write_text(FACTORS)
    assert run("import", str(tmp_path / "f.csv")).output == (
        "1 factors read, 1 new or changed: version 2; 0 days recomputed\n"
    )
    assert run("import", str(tmp_path / "f.csv")).output == "1 factors read, nothing new\n"


def test_a_bad_import_names_its_line_and_changes_nothing(site, tmp_path):
    (tmp_path / "f.csv").write_text(FACTORS + "DE,2026-01-05T01:00Z,2026-01-05T02:00Z,-3\n")
    with pytest.raises(ConfigError, match=r"f\.csv, line 7: not a factor"):
        run("import", str(tmp_path / "f.csv"))
    assert not (tmp_path / "store.db").exists()


def test_the_list_shows_versions_and_what_is_in_them(site, tmp_path):
    (tmp_path / "f.csv").write_text(FACTORS)
    site(grid_zone="DE", method="measured")
    run("import", str(tmp_path / "f.csv"))
    run("pue", "2026-02-01", "1.15")
    tables = listed()
    newest = tables["versions"][0]
    assert (newest["version"], newest["reason"]) == (3, "PUE 1.15 by hand")
    assert [row["pue"] for row in tables["pue"]] == ["1.3", "1.15"]
    assert "a book" in {row["source"] for row in tables["factors"]}
    assert [row["pue"] for row in listed("--version", "1")["pue"]] == ["1.3"]
    with pytest.raises(NotFoundError, match="version"):
        run("list", "--version", "9")


def test_a_pue_by_hand_is_refused_where_a_file_has_the_history(site, tmp_path):
    (tmp_path / "p.csv").write_text("from,pue\n2020-01-01,1.4\n")
    site(pue_file=str(tmp_path / "p.csv"))
    with pytest.raises(ConfigError, match=r"carbon\.pue_file"):
        run("pue", "2026-02-01", "1.15")


def test_fetch_asks_the_configured_service(site, tmp_path):
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 10 * 86_400))
    entry = {"from": f"{day}T00:00Z", "to": f"{day}T00:30Z", "intensity": {"actual": 77}}
    service = GridService({"*": (200, json.dumps({"data": [entry]}).encode())})
    try:
        site(source="uk", source_url=service.url, zone="GBR")
        until = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 9 * 86_400))
        words = ("fetch", "--from", day, "--until", until, "--json")
        done = json.loads(run(*words).output)
        assert (done["read"] >= 1, done["changed"], done["days"]) == (True, 1, 0)
        assert json.loads(run(*words).output)["version"] is None
        rows = listed()["factors"]
        assert ("GB", "operational-consumption") in {(r["zone"], r["method"]) for r in rows}
    finally:
        service.close()
    db = open_store(tmp_path / "store.db")
    assert db.execute("SELECT mg_per_kwh FROM grid_factor WHERE zone = 'GB'").fetchall() == [
        (77_000,)
    ]
    db.close()


def test_fetch_without_a_service_says_what_to_set(site):
    with pytest.raises(ConfigError, match=r"carbon\.source"):
        run("fetch")


def test_a_service_that_fails_is_one_line(site, monkeypatch):
    at_once = functools.partial(fetch, waits_s=())
    monkeypatch.setattr("fairwatt.accounting.carbon.commands.fetch", at_once)
    service = GridService({"*": (429, b"")})
    try:
        site(source="uk", source_url=service.url)
        with pytest.raises(SourceError, match="too many questions"):
            run("fetch")
    finally:
        service.close()


def test_a_marginal_method_is_refused(site):
    site(method="marginal")
    with pytest.raises(ConfigError, match=r"carbon\.method"):
        run("restate")


def test_restate_and_report_on_an_empty_store(site, tmp_path):
    assert run("restate").output == "0 days recomputed\n"
    db = open_store(tmp_path / "store.db")
    db.execute("INSERT INTO account VALUES ('campus', 'root', NULL, 1, '', 0)")
    db.conn.commit()
    db.close()
    shown = run("report", "--period", "2026-01").output
    assert "Location-based: the grid of DEU, lifecycle-average" in shown
    assert "carbon factors version 1" in shown
    # The months' GPU energy on the terminal is that of the page.
    path = tmp_path / "fairwatt.toml"
    path.write_text(path.read_text() + '[report]\nidle_policy = "none"\n')
    assert "Idle policy none: " in run("report", "--period", "2026-01").output
    with pytest.raises(NotFoundError):
        run("report", "nobody")
    with pytest.raises(NotFoundError):
        run("report", "--factors-version", "7")
    assert Path(tmp_path / "store.db").exists()
