# SPDX-License-Identifier: Apache-2.0
"""The pages: each makes a report for the visitor's scope and shows its tables, or exports one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from flask import (
    Blueprint,
    Response,
    abort,
    current_app,
    g,
    redirect,
    render_template,
    request,
    url_for,
)
from flask import make_response as respond
from flask.typing import ResponseReturnValue

from fairwatt.accounting.reports.carbon_basis import CarbonAsk, version_words
from fairwatt.accounting.reports.carbon_versions import versions_report
from fairwatt.accounting.reports.decisions import decisions_report
from fairwatt.accounting.reports.dept import dept_report
from fairwatt.accounting.reports.failslow import slow_devices_report
from fairwatt.accounting.reports.freshness import as_of_ts, invented_by
from fairwatt.accounting.reports.job import job_report
from fairwatt.accounting.reports.me import me_report
from fairwatt.accounting.reports.messages import messages_report
from fairwatt.accounting.reports.period import Period, parse_period, today_in
from fairwatt.accounting.reports.scope import Role, Scope, departments
from fairwatt.accounting.store import SQLITE_INTEGER_MAX, data_version
from fairwatt.core.coded import coded_messages
from fairwatt.core.config import Config
from fairwatt.core.errors import NotFoundError
from fairwatt.core.records import Table
from fairwatt.dashboard import figures, identity
from fairwatt.dashboard.exports import csv_response, json_response

__all__ = ["blueprint", "error_page"]

blueprint = Blueprint("pages", __name__)

PERIODS = (
    ("7d", "7 days"),
    ("30d", "30 days"),
    ("month", "This month"),
    ("last-month", "Last month"),
    ("90d", "90 days"),
    ("365d", "365 days"),
)
_TITLES = {
    400: "That address cannot be read",
    403: "That was not allowed",
    404: "Not found",
    405: "Not found",
    503: "The data cannot be read now",
}
_DETAILS = {
    404: "There is no such page, or it is not among what you may see.",
    405: "There is no such page, or it is not among what you may see.",
    503: "The store is busy, away, or the question was too large. Try again, or a shorter period.",
}


@blueprint.get("/")
def home() -> ResponseReturnValue:
    """Lead to the visitor's own page."""
    return redirect("/me")


@blueprint.get("/healthz")
def health() -> ResponseReturnValue:
    """Say that the store can be read."""
    return Response('{"ok":true}\n', mimetype="application/json")


@blueprint.get("/me")
def me() -> ResponseReturnValue:
    """How am I doing?"""
    scope, period = _scope(), _period()
    tables = me_report(_db(), scope, period, carbon=_carbon(), **_use())
    return _answer("me", "me.html", scope, tables, period, figures=figures.of_me(tables))


@blueprint.get("/jobs/<cluster>/<int:job_id>")
def job(cluster: str, job_id: int) -> ResponseReturnValue:
    """What happened to this job?"""
    scope = _scope()
    if job_id > SQLITE_INTEGER_MAX:
        raise NotFoundError("no such job in your view", place="job", value=job_id)
    tables = job_report(_db(), scope, cluster, job_id, carbon=_carbon(), **_use())
    shown = {"figures": figures.of_job(tables), "job": tables[0].records()[0]}
    return _answer(f"job-{cluster}-{job_id}", "job.html", scope, tables, None, **shown)


@blueprint.get("/dept/<account>")
def dept(account: str) -> ResponseReturnValue:
    """Did we get our share, and was it used well?"""
    scope, period = _scope(), _period()
    cluster, idle_policy = _config()["site.cluster"], _config()["report.idle_policy"]
    tables = dept_report(_db(), scope, cluster, account, period, _carbon(), idle_policy)
    shown = {"figures": figures.of_dept(tables), "account": account}
    return _answer(f"dept-{account}", "dept.html", scope, tables, period, **shown)


@blueprint.get("/policy")
def policy() -> ResponseReturnValue:
    """What did the submit policy do?"""
    scope, period = _scope(), _period()
    tables = decisions_report(_db(), scope, period)
    return _answer("policy", "policy.html", scope, tables, period)


@blueprint.get("/devices")
def devices() -> ResponseReturnValue:
    """Which GPUs are slower than their peers? For admins: it names nodes and others' jobs."""
    scope, period = _scope(), _period()
    if scope.role is not Role.ADMIN:
        raise NotFoundError("no such page in your view", place="page", value="devices")
    tables = slow_devices_report(_db(), scope, period)
    return _answer("devices", "devices.html", scope, tables, period)


@blueprint.get("/carbon")
def carbon() -> ResponseReturnValue:
    """Can I defend the numbers? For admins: what carbon is computed from, version by version."""
    scope, ask = _scope(), _carbon()
    if scope.role is not Role.ADMIN:
        raise NotFoundError("no such page in your view", place="page", value="carbon")
    tables = versions_report(_db(), ask.version)
    shown = ask.version or (tables[0].rows[0][0] if tables[0].rows else 0)
    return _answer("carbon", "carbon.html", scope, tables, None, shown_version=shown)


@blueprint.get("/messages")
def messages() -> ResponseReturnValue:
    """What does this number mean?"""
    return _answer(
        "messages", "messages.html", _scope(), [messages_report(data_version(_db()))], None
    )


@blueprint.post("/persona")
def persona() -> ResponseReturnValue:
    """Look through another person's eyes (demo identity only)."""
    identity.check_post(request)
    scope = identity.switch_to(_db(), request.form.get("user", ""))
    if scope is None:
        abort(400)
    tops = _departments(scope)
    page = url_for("pages.dept", account=tops[0]) if tops else url_for("pages.me")
    return redirect(page, 303)


def error_page(code: int, detail: str = "") -> Response:
    """Return the page for an error; missing and out of scope look the same."""
    code = 404 if code == 405 else code
    context = {
        "title": _TITLES.get(code, "Something went wrong"),
        "detail": detail or _DETAILS.get(code, ""),
        "version": None,
    }
    if "db" in g and code != 503:
        context |= _frame(identity.visitor(_db()))
    return respond(render_template("error.html", **context), code)


def _answer(
    page: str,
    template: str,
    scope: Scope,
    tables: Sequence[Table],
    period: Period | None,
    **context: object,
) -> ResponseReturnValue:
    """Show the page, or the table that the address asks for as CSV or JSON."""
    wanted = request.args.get("format", "html")
    if wanted == "html":
        named = {table.name: table for table in tables}
        frame = _frame(scope) | {
            "here": request.path,
            "period": period,
            "periods": PERIODS,
            "tables": named,
            "explained": coded_messages(),
        }
        if "carbon" in named or page == "me":
            frame["factors"] = version_words(_db(), _carbon().version) or "no carbon factors"
            frame["idle_policy"] = _config()["report.idle_policy"]
        return render_template(template, **frame, **context, version=tables[0].data_version)
    chosen = _chosen(tables, request.args.get("table"))
    if wanted == "json":
        return json_response(chosen)
    if wanted != "csv" or len(chosen) != 1:
        abort(400)
    return csv_response(chosen[0], page)


def _chosen(tables: Sequence[Table], name: str | None) -> Sequence[Table]:
    chosen = [table for table in tables if name in (None, table.name)]
    if not chosen:
        raise NotFoundError("no such table", place="table", value=name)
    return chosen


def _frame(scope: Scope) -> dict[str, Any]:
    """Return what every page shows around its content."""
    db = _db()
    return {
        "scope": scope,
        "scope_words": _scope_words(scope),
        "departments": _departments(scope),
        "personas": identity.personas(db),
        "as_of_ts": as_of_ts(db, _config()["site.cluster"]),
        "invented": invented_by(db),
        "zone": _config()["site.timezone"],
    }


def _departments(scope: Scope) -> list[str]:
    """Return the accounts to offer in the menu."""
    return departments(_db(), scope, _config()["site.cluster"])


def _scope_words(scope: Scope) -> str:
    if scope.role is Role.ADMIN:
        return "everything"
    tops = _departments(scope)
    return f"your own runs; {', '.join(tops)} and below" if tops else "your own runs"


def _period() -> Period:
    zone = _config()["site.timezone"]
    today = today_in(zone, current_app.config["FAIRWATT_CLOCK"]())
    return parse_period(request.args.get("period", "30d"), today, zone)


def _carbon() -> CarbonAsk:
    """Return which version of the factors the address asks for; none: the newest."""
    text = request.args.get("factors", "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        abort(400)
    return CarbonAsk(
        version=int(text) if text else None,
        zone=_config()["carbon.zone"],
        catalogue_dir=_config()["site.catalogue_dir"],
    )


def _use() -> dict[str, Any]:
    """Return how the site judges runs, and who gets idle energy."""
    return {
        "idle_policy": _config()["report.idle_policy"],
        "yardstick": current_app.config["FAIRWATT_YARDSTICK"],
    }


def _scope() -> Scope:
    return identity.visitor(_db())


def _db() -> sqlite3.Connection:
    db: sqlite3.Connection = g.db
    return db


def _config() -> Config:
    config: Config = current_app.config["FAIRWATT"]
    return config
