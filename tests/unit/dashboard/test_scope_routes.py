# SPDX-License-Identifier: Apache-2.0
"""Every route × persona × form: nobody gets a row that the role does not allow."""

from __future__ import annotations

import itertools
import json
import sqlite3

import pytest

PERSONAS = {
    "ada": {"own": {"ada"}, "accounts": set()},
    "fay": {"own": {"fay"}, "accounts": set()},
    "hana": {"own": {"hana"}, "accounts": {"physics", "qcd", "optics"}},
    "root": {"own": None, "accounts": None},
}
FORMS = ("", "?format=json", "?format=csv&table=summary")
JOB_FORMS = ("", "?format=json", "?format=csv&table=runs")
ACCOUNTS = ("root", "physics", "qcd", "optics", "chemistry", "medicine", "none")


@pytest.fixture(scope="module")
def jobs(seeded):
    """One job of each user: (job id, user, account)."""
    db = sqlite3.connect(seeded)
    rows = db.execute("SELECT MIN(job_id), user, account FROM run GROUP BY user").fetchall()
    db.close()
    assert len(rows) > 20
    return rows


def test_every_page_route_is_covered_here(app):
    rules = {rule.rule for rule in app.url_map.iter_rules()}
    assert rules == {
        "/", "/me", "/healthz", "/persona", "/jobs/<cluster>/<int:job_id>", "/dept/<account>",
        "/policy", "/devices", "/carbon", "/messages", "/static/<path:filename>",
    }  # fmt: skip


@pytest.mark.parametrize(("user", "form"), list(itertools.product(PERSONAS, JOB_FORMS)))
def test_jobs(visit, jobs, user, form):
    may = PERSONAS[user]
    client = visit(user)
    for job_id, owner, account in jobs:
        allowed = may["own"] is None or owner in may["own"] or account in may["accounts"]
        answer = client.get(f"/jobs/campus/{job_id}{form}")
        assert answer.status_code == (200 if allowed else 404), (owner, account)


@pytest.mark.parametrize(("user", "form"), list(itertools.product(PERSONAS, FORMS)))
def test_departments(visit, user, form):
    may = PERSONAS[user]
    client = visit(user)
    for account in ACCOUNTS:
        allowed = account != "none" and (may["accounts"] is None or account in may["accounts"])
        answer = client.get(f"/dept/{account}{form}")
        assert answer.status_code == (200 if allowed else 404), account


@pytest.mark.parametrize("user", PERSONAS)
def test_own_page_lists_own_jobs_only(visit, seeded, user):
    tables = json.loads(visit(user).get("/me?format=json").text)["tables"]
    listed = {row["job_id"] for t in tables if t["name"] == "jobs" for row in t["rows"]}
    db = sqlite3.connect(seeded)
    own = {job for (job,) in db.execute("SELECT job_id FROM run WHERE user = ?", (user,))}
    db.close()
    assert listed <= own
    assert bool(listed) == bool(own)


@pytest.mark.parametrize("user", PERSONAS)
def test_the_policy_page_lists_whose_jobs_one_may_see(visit, seeded, user):
    may = PERSONAS[user]
    body = json.loads(visit(user).get("/policy?format=json&period=30d").text)
    refused = next(table for table in body["tables"] if table["name"] == "refusals")["rows"]
    codes = next(table for table in body["tables"] if table["name"] == "codes")["rows"]
    told = {(row["user"], row["account"]) for row in refused}
    db = sqlite3.connect(seeded)
    everyone = set(db.execute("SELECT DISTINCT user, account FROM decision WHERE NOT accepted"))
    counts = db.execute("SELECT user, account, COUNT(*) FROM decision GROUP BY 1, 2").fetchall()
    db.close()

    def allowed(name, account):
        return may["own"] is None or name in may["own"] or account in may["accounts"]

    assert told == {pair for pair in everyone if allowed(*pair)}
    assert len(everyone) > 3
    assert sum(row["count"] for row in codes) == sum(n for *who, n in counts if allowed(*who))


@pytest.mark.parametrize("user", PERSONAS)
@pytest.mark.parametrize("form", ["", "?format=json", "?format=csv&table=versions", "?factors=1"])
def test_carbon_factors_are_for_admins(visit, user, form):
    client = visit(user)
    assert client.get(f"/carbon{form}").status_code == (200 if user == "root" else 404)
    assert ('href="/carbon"' in client.get("/me").text) == (user == "root")


@pytest.mark.parametrize(
    ("factors", "status"), [("1", 200), ("9", 404), ("x", 400), ("-1", 400), ("9" * 40, 400)]
)
def test_a_page_of_an_older_version_says_so_and_an_unknown_one_is_not_there(
    visit, factors, status
):
    answer = visit("root").get(f"/dept/root?factors={factors}")
    assert answer.status_code == status
    if status == 200:
        assert f"carbon factors version {factors}" in answer.text
        assert f"factors={factors}" in answer.text


@pytest.mark.parametrize("path", ["/me", "/dept/root", "/me?period=2001-01"])
def test_every_page_of_energy_names_factors_idle_policy_and_data(visit, path):
    foot = visit("root").get(path).text.partition("<footer>")[2]
    for part in ("carbon factors version ", "idle policy reserved", ", version "):
        assert part in foot


@pytest.mark.parametrize("user", PERSONAS)
@pytest.mark.parametrize("form", ["", "?format=json", "?format=csv&table=devices"])
def test_slow_devices_are_for_admins(visit, user, form):
    client = visit(user)
    assert client.get(f"/devices{form}").status_code == (200 if user == "root" else 404)
    assert ('href="/devices"' in client.get("/me").text) == (user == "root")


def test_everybody_may_read_what_the_messages_mean(visit):
    body = json.loads(visit("ada").get("/messages?format=json").text)
    known = {row["code"]: row for row in body["tables"][0]["rows"]}
    assert known["FW302"]["remedy"] == "Use one of the types that the message names."


def test_a_department_s_pages_name_no_other_account(visit):
    """The others appear only as a sum inside a share."""
    for form in ("", "?format=json"):
        text = visit("hana").get(f"/dept/physics{form}").text
        for foreign in ("chemistry", "medicine"):
            assert foreign not in text


def test_a_heads_tables_name_no_users(visit):
    body = json.loads(visit("hana").get("/dept/physics?format=json").text)
    assert "ada" not in json.dumps(body)
