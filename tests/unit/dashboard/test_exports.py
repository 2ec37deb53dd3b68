# SPDX-License-Identifier: Apache-2.0
"""CSV and JSON: formulas, numbers, unknown."""

from __future__ import annotations

import csv
import io
import json

import pytest

from fairwatt.core.records import Column, Table
from fairwatt.dashboard.exports import as_csv, safe_cell, safe_name


def table(*rows):
    columns = [
        Column(key="name", title="Name", kind="text", definition="d"),
        Column(key="difference", title="D", kind="ratio", definition="d"),
    ]
    return Table(name="t", title="T", columns=columns, rows=rows, data_version=1)


@pytest.mark.parametrize(
    "text",
    ['=HYPERLINK("http://x","y")', "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1",
     "＝1", "＋1", "－1", "＠x"],
)  # fmt: skip
def test_formulas_become_text(text):
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["train", "a=b", "1-2", "", "é", "<img>", "';--"])
def test_plain_text_is_untouched(text):
    assert safe_cell(text) == text


def test_numbers_stay_numbers_and_unknown_is_empty():
    text = as_csv(table(("=x", -0.25), ("y", None)))
    assert text == "name,difference\r\n'=x,-0.25\r\ny,\r\n"


def test_csv_reads_back_whatever_the_text():
    hostile = 'a,"b"\n;\r<script>\u202e🙂' + "x" * 1000
    rows = list(csv.reader(io.StringIO(as_csv(table((hostile, 1.5))), newline="")))
    assert rows[1] == [hostile, "1.5"]


def test_file_names_are_plain():
    assert safe_name("job-campus-7") == "job-campus-7"
    assert safe_name('../../etc/"passwd"\r\nX: y') == "etc_passwd_X_y"
    assert safe_name("…") == "table"


def test_page_json_and_csv_show_the_same_rows(visit):
    client = visit("ada")
    body = json.loads(client.get("/me?format=json&table=jobs").text)["tables"][0]
    answer = client.get("/me?format=csv&table=jobs")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["job_id"] for row in rows] == [str(row["job_id"]) for row in body["rows"]]
    page = client.get("/me").text.partition('id="jobs"')[2]
    places = [page.index(f"/jobs/campus/{row['job_id']}") for row in body["rows"]]
    assert places == sorted(places)
    assert answer.headers["Content-Disposition"] == 'attachment; filename="fairwatt-me-jobs.csv"'
    assert answer.mimetype == "text/csv"


def test_every_table_of_a_page_has_both_twins(visit):
    client = visit("hana")
    page = client.get("/dept/physics").text
    for entry in json.loads(client.get("/dept/physics?format=json").text)["tables"]:
        if entry["name"] != "headlines":
            assert f"table={entry['name']}" in page
        for form in ("csv", "json"):
            assert (
                client.get(f"/dept/physics?format={form}&table={entry['name']}").status_code == 200
            )


def test_a_headline_can_be_reckoned_from_the_csv(visit):
    client = visit("hana")
    accounts = csv.DictReader(
        io.StringIO(client.get("/dept/physics?format=csv&table=accounts").text)
    )
    summary = next(
        csv.DictReader(io.StringIO(client.get("/dept/physics?format=csv&table=summary").text))
    )
    rows = list(accounts)
    assert sum(float(row["fge_hours"]) for row in rows) == pytest.approx(
        float(summary["fge_hours"]), abs=1e-4
    )
    assert sum(int(row["energy_mj"]) for row in rows) == int(summary["energy_mj"])
