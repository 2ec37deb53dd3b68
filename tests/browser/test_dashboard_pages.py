# SPDX-License-Identifier: Apache-2.0
"""The pages in a real Chromium: each persona, light and dark, wide and narrow.

No console message, no breach of the content policy, no axe finding; the screenshots stay under
build/screenshots.
"""

from __future__ import annotations

import itertools
import logging
import sqlite3
import threading
from datetime import date
from pathlib import Path

import pytest
from werkzeug.serving import make_server

from fairwatt.accounting.days import day_bounds, site_zone
from fairwatt.accounting.store import open_store
from fairwatt.dashboard.app import create_app
from fairwatt.dashboard.demo import demo_config, fill_store

pytestmark = pytest.mark.browser

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
UNTIL = date(2026, 11, 30)
PERSONAS = {"ada": "researcher", "hana": "head", "root": "admin"}
SIZES = {"wide": (1280, 900), "phone": (390, 844)}
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
BREACHES = """
    window.breaches = [];
    document.addEventListener('securitypolicyviolation',
        e => window.breaches.push(`${e.violatedDirective} ${e.blockedURI}`));
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The invented year, with one hostile job of ada's as the newest."""
    path = tmp_path_factory.mktemp("browser") / "fairwatt.db"
    fill_store(demo_config("127.0.0.1:0", path), UNTIL)
    db = open_store(path)
    db.execute("INSERT INTO word (text) VALUES (?)", ("x" * 300,))
    db.execute(
        "UPDATE job_run SET name = ?, partition_id = (SELECT max(id) FROM word) WHERE run_id ="
        " (SELECT run_id FROM run WHERE user = 'ada' ORDER BY submit_ts DESC, run_id DESC)",
        (HOSTILE,),
    )
    db.conn.commit()
    db.close()
    return path


@pytest.fixture(scope="module")
def base(store):
    now_ts = day_bounds(str(UNTIL), site_zone("Europe/Berlin"))[0] + 43_200
    app = create_app(demo_config("127.0.0.1:0", store), store, clock=lambda: now_ts)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM.exists():
        pytest.skip("no Chromium on this host")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser):
    """`open_page(scheme, size)` gives a page that collects what it complains about."""
    contexts = []

    def opened(scheme="light", size="wide", **how):
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, **how
        )
        contexts.append(context)
        page = context.new_page()
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("requestfailed", lambda request: page.complaints.extend(_failure(request)))
        page.add_init_script(BREACHES)
        return page

    yield opened
    for context in contexts:
        context.close()


def _failure(request):
    """A request that the next navigation cut short is no failure."""
    return [] if request.failure == "net::ERR_ABORTED" else [f"{request.url}: {request.failure}"]


def look_as(page, base, user):
    page.goto(f"{base}/me")
    page.select_option("#persona", user)
    page.click("form.persona button")
    page.wait_for_load_state()


def quiet(page):
    return page.complaints == [] and page.evaluate("window.breaches") == []


def job_with_everything(store):
    """A job of ada's that was rewritten and measured on several GPUs."""
    db = sqlite3.connect(store)
    (job_id,) = db.execute(
        "SELECT job_id FROM run JOIN run_gpu USING (run_id) WHERE user = 'ada' AND count > 1"
        " AND decision IS NOT NULL AND run_id IN (SELECT run_id FROM run_energy)"
        " ORDER BY job_id DESC LIMIT 1"
    ).fetchone()
    db.close()
    return job_id


COMBINATIONS = list(itertools.product(PERSONAS, ("light", "dark"), SIZES))


@pytest.mark.parametrize(("user", "scheme", "size"), COMBINATIONS)
def test_each_page(open_page, base, store, user, scheme, size):
    page = open_page(scheme, size)
    look_as(page, base, user)
    job_id = job_with_everything(store)
    department = {"ada": "physics", "hana": "physics", "root": "root"}[user]
    SHOTS.mkdir(parents=True, exist_ok=True)
    for name, path, status in (
        ("me", "/me", 200),
        ("job", f"/jobs/campus/{job_id}", 200),
        ("dept", f"/dept/{department}?period=90d", 404 if user == "ada" else 200),
        ("policy", "/policy?period=90d", 200),
        ("devices", "/devices?period=90d", 200 if user == "root" else 404),
        ("carbon", "/carbon", 200 if user == "root" else 404),
        ("messages", "/messages", 200),
    ):
        page.complaints.clear()
        answer = page.goto(base + path)
        assert answer.status == status
        if status == 404:
            # The browser itself reports the status, and nothing else.
            assert all("404" in text for text in page.complaints)
            page.complaints.clear()
        assert quiet(page), (page.complaints, page.evaluate("window.breaches"))
        assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
        page.screenshot(
            path=SHOTS / f"{name}-{PERSONAS[user]}-{scheme}-{size}.png", full_page=True
        )


def test_the_picture_of_the_docs(browser, base):
    """docs/images/dept.png is a copy of build/screenshots/docs-dept.png."""
    page = browser.new_page(viewport={"width": 1200, "height": 1010})
    look_as(page, base, "hana")
    page.goto(f"{base}/dept/physics?period=90d")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "docs-dept.png")
    page.close()
    assert (SHOTS / "docs-dept.png").stat().st_size > 50_000


def test_a_chart_is_drawn_once_for_each_width(open_page, base):
    page = open_page()
    look_as(page, base, "hana")
    assert page.locator("#series svg.chart.wide").is_visible()
    assert not page.locator("#series svg.chart.narrow").is_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.locator("#series svg.chart.narrow").is_visible()
    assert not page.locator("#series svg.chart.wide").is_visible()


def test_a_hostile_job_name_stays_text(open_page, base):
    page = open_page()
    look_as(page, base, "ada")
    assert HOSTILE in page.locator("#jobs").inner_text()
    page.click("#jobs tbody tr:first-child a")
    page.wait_for_load_state()
    assert HOSTILE in page.locator(".jobname").inner_text()
    assert "owned" not in page.title()
    assert quiet(page)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_pages_work_without_script_and_by_keyboard(open_page, base):
    page = open_page(java_script_enabled=False)
    page.goto(f"{base}/me")
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the content"
    page.select_option("#persona", "hana")
    page.focus("form.persona button")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dept/physics")
    page.click("#accounts .numbers summary")
    assert page.locator("#accounts table").is_visible()


def test_a_job_says_what_the_policy_did_and_what_its_number_means(open_page, base, store):
    page = open_page()
    look_as(page, base, "ada")
    page.goto(f"{base}/jobs/campus/{job_with_everything(store)}")
    card = page.locator("#rewrite")
    assert "→" in card.locator(".swap").inner_text()
    assert "µs" in card.inner_text()
    card.locator("summary", has_text="The whole decision").click()
    assert "tres_per_node=" in card.locator(".pairs").inner_text()
    code = card.locator("p a").first
    number = code.inner_text()
    code.click()
    page.wait_for_url(f"**/messages#{number}")
    assert page.locator(f"#{number}").inner_text().startswith(number)
    assert quiet(page)


def test_a_job_that_nobody_changed_is_as_asked(open_page, base, store):
    db = sqlite3.connect(store)
    (job_id,) = db.execute(
        "SELECT job_id FROM run WHERE user = 'ada' AND decision IS NULL ORDER BY job_id DESC"
    ).fetchone()
    db.close()
    page = open_page()
    look_as(page, base, "ada")
    page.goto(f"{base}/jobs/campus/{job_id}")
    assert "as asked" in page.locator("#rewrite").inner_text()


def test_the_admin_sees_the_refusals_of_all(open_page, base):
    page = open_page()
    look_as(page, base, "root")
    page.click("nav >> text=Submit policy")
    page.click("nav.periods >> text=90 days")
    assert "FW302" in page.locator("#refusals").inner_text()
    assert page.evaluate(TOO_WIDE) == []
    assert quiet(page)


def test_a_table_comes_down_as_csv(open_page, base):
    page = open_page()
    look_as(page, base, "hana")
    with page.expect_download() as download:
        page.click("#accounts .export a:first-child")
    assert download.value.suggested_filename == "fairwatt-dept-physics-accounts.csv"
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert text.startswith("account,entitled,used,difference,")


@pytest.mark.parametrize(("user", "scheme"), list(itertools.product(PERSONAS, ("light", "dark"))))
def test_axe_finds_nothing(open_page, base, store, user, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page = open_page(scheme, bypass_csp=True)
    look_as(page, base, user)
    departments = ["/dept/physics", "/dept/qcd", "/dept/physics?period=2001-01"]
    paths = ["/me", f"/jobs/campus/{job_with_everything(store)}", "/nope", "/me?period=2001-01"]
    paths += ["/policy?period=90d", "/policy?period=2001-01", "/messages"]
    paths += [] if user == "ada" else departments
    paths += ["/devices?period=90d", "/carbon"] if user == "root" else []
    for path in paths:
        page.goto(base + path)
        for details in page.locator("details").all():
            details.evaluate("node => { node.open = true }")
        found = Axe().run(page).response["violations"]
        assert [(path, v["id"], v["nodes"][0]["html"][:200]) for v in found] == []


def test_print_shows_numbers_and_no_controls(open_page, base):
    page = open_page()
    look_as(page, base, "hana")
    page.emulate_media(media="print")
    assert not page.locator("form.persona").is_visible()
    assert page.locator("h1").is_visible()


TOO_WIDE = """[...document.querySelectorAll('.scroll')]
    .filter(box => box.checkVisibility({contentVisibilityAuto: true}))
    .filter(box => box.scrollWidth > box.clientWidth + 1)
    .map(box => `${box.ariaLabel}: ${box.scrollWidth} in ${box.clientWidth}`)"""
LONG_CELLS = """document.querySelectorAll('#jobs tbody tr').forEach(row => {
    row.cells[2].textContent = '✕ OUT_OF_MEMORY';
    row.cells[3].textContent = '2 × nvidia_a100_80gb_pcie_1g.10gb, 1 × nvidia_h100_nvl_7g.94gb';
    row.cells[5].textContent = row.cells[6].textContent = '12 d 23 h';
})"""


def test_the_last_jobs_fit_a_laptop_whatever_they_are_called(open_page, base):
    page = open_page()
    look_as(page, base, "ada")
    page.evaluate(LONG_CELLS)
    assert page.evaluate(TOO_WIDE) == []


def test_all_sums_are_seen_without_scrolling(open_page, base):
    page = open_page()
    look_as(page, base, "hana")
    page.click("#summary > details > summary")
    assert page.evaluate(TOO_WIDE) == []


def test_on_paper_nothing_leaves_its_card(open_page, base, store):
    page = open_page()
    look_as(page, base, "hana")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 688, "height": 1000})  # A4 less 14 mm on either side
    for path in ("/dept/physics?period=last-month", "/me", f"/jobs/campus/{newest_job(store)}"):
        page.goto(f"{base}{path}")
        assert page.evaluate(TOO_WIDE) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 688


def test_a_month_of_a_department_is_two_to_four_sheets(open_page, base):
    """Every sum and sentence; what columns mean and the days behind a chart stay on the screen."""
    page = open_page()
    look_as(page, base, "hana")
    page.goto(f"{base}/dept/physics?period=last-month")
    sheets = page.pdf(format="A4").count(b"/Type /Page\n")
    assert 2 <= sheets <= 4
    page.emulate_media(media="print")
    assert page.locator("#carbon .how p").first.is_visible()
    assert page.locator("#months table").is_visible()
    assert not page.locator("#series table").is_visible()


def test_words_beside_numbers_are_no_column_of_single_words_on_a_telephone(open_page, base):
    page = open_page(size="phone")
    look_as(page, base, "hana")
    rows = page.locator("#waste_classes tbody tr")
    heights = rows.evaluate_all("rows => rows.map(row => row.offsetHeight)")
    assert heights
    assert max(heights) <= 64  # two lines of words


def newest_job(store):
    db = sqlite3.connect(store)
    (job_id,) = db.execute(
        "SELECT max(job_id) FROM run JOIN run_energy USING (run_id) WHERE account = 'qcd'"
    ).fetchone()
    db.close()
    return job_id
