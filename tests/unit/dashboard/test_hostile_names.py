# SPDX-License-Identifier: Apache-2.0
"""Job names, accounts and users are hostile text: inert on pages, in charts and in exports."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser

import pytest

from fairwatt.dashboard.app import create_app
from fairwatt.dashboard.demo import demo_config
from tests.unit.dashboard.conftest import switch
from tests.unit.reports.tiny import add_account, add_member, add_run, add_usage, new_store

IMG = "<img src=x onerror=alert(1)>"
LINK = '=HYPERLINK("http://evil.example","x")'
NAMES = [IMG, LINK, "';--", '"><script>alert(1)</script>', "{{7*7}}", "\u202eevil🙂", "x" * 1024,
         "a\nb\x00c", "]]>&amp;"]  # fmt: skip
NOW_TS = 1_772_000_000  # 2026-02-25


@pytest.fixture
def client(tmp_path):
    store = new_store(tmp_path / "s.db")
    for number, name in enumerate(NAMES):
        add_run(store, cluster="campus", job_id=number, name=name, partition=name, user="ann",
                decision=json.dumps({"asked": name, "given": name, "notes": [[name, name]]}),
                nodelist=name, state=name, submit_ts=NOW_TS + number, eligible_ts=NOW_TS,
                start_ts=NOW_TS, end_ts=NOW_TS + 9)  # fmt: skip
    store.execute("UPDATE account SET cluster = 'campus'")
    store.execute("UPDATE membership SET cluster = 'campus'")
    add_account(store, "deep", "a", 1)
    store.execute("UPDATE account SET cluster = 'campus', name = ? WHERE name = 'deep'", (IMG,))
    add_usage(store, cluster="campus", account=IMG, gpu_type=IMG, hours=4, device_s=9,
              day="2026-02-24")  # fmt: skip
    add_member(store, IMG, "a1", 0)
    store.execute("UPDATE membership SET cluster = 'campus'")
    store.close()
    app = create_app(
        demo_config("127.0.0.1:0", tmp_path / "s.db"), tmp_path / "s.db", clock=lambda: NOW_TS
    )
    return app.test_client()


class Tags(HTMLParser):
    """The tags that a browser would see, and what their attributes hold."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def assert_inert(html):
    parser = Tags()
    parser.feed(html)
    assert "{{" not in html.replace("{{7*7}}", "")
    assert ">49<" not in html
    for tag, attributes in parser.found:
        assert tag not in ("script", "style", "iframe", "object", "embed", "base")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        if tag == "img":
            assert attributes["src"] == "/static/icon.svg"
        for name in ("href", "src", "action"):
            assert attributes.get(name, "/").startswith(("/", "#", "?"))


def test_pages(client):
    switch(client, "ann")
    page = client.get("/me").text
    assert_inert(page)
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert f"{'x' * 79}…" in page  # a name of 1 kB is no row of sixty lines
    assert page.count("x" * 1024) == 1  # as a state, which Slurm would not have
    for number in range(len(NAMES)):
        answer = client.get(f"/jobs/campus/{number}")
        assert answer.status_code == 200
        assert_inert(answer.text)


def test_the_page_of_a_job_has_its_whole_name(client):
    switch(client, "ann")
    assert "x" * 1024 in client.get(f"/jobs/campus/{NAMES.index('x' * 1024)}").text


def test_a_name_that_turns_the_line_around_turns_itself_alone(client):
    """U+202E inside <bdi> ends with it: the user and the account behind it stay readable."""
    switch(client, "ann")
    number = NAMES.index("\u202eevil🙂")
    page = client.get(f"/jobs/campus/{number}").text
    assert '<bdi class="jobname">\u202eevil🙂</bdi> by ann' in page


def test_account_names_in_charts_and_persona_names_in_the_menu(client):
    switch(client, "head")
    page = client.get("/dept/a").text
    assert_inert(page)
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") > 4
    assert switch(client, IMG).status_code == 303
    assert_inert(client.get("/me").text)


def test_exports(client):
    switch(client, "ann")
    rows = list(csv.DictReader(io.StringIO(client.get("/me?format=csv&table=jobs").text)))
    assert f"'{LINK}" in {row["name"] for row in rows}
    assert IMG in {row["name"] for row in rows}
    body = json.loads(client.get("/me?format=json&table=jobs").text)
    assert {row["name"] for row in body["tables"][0]["rows"]} == set(NAMES)
    switch(client, "head")
    name = client.get(f"/dept/{IMG}?format=csv&table=summary").headers["Content-Disposition"]
    assert name == 'attachment; filename="fairwatt-dept-_img_src_x_onerror_alert_1-summary.csv"'
