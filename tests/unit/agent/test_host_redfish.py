# SPDX-License-Identifier: Apache-2.0
"""The node's power by Redfish, from a BMC of our own that may be hostile."""

from __future__ import annotations

import base64
import shutil
import ssl
import time
from pathlib import Path

import pytest

from fairwatt.accounting.agent.host import redfish
from fairwatt.core.call import call
from fairwatt.core.errors import ConfigError
from tests.fakes.bmc_server import bmc_server, collection, page

RECORDED = Path(__file__).parents[2] / "data" / "bmc"
CHASSIS = "/redfish/v1/Chassis"


@pytest.fixture
def credentials(tmp_path) -> Path:
    path = tmp_path / "redfish.credentials"
    path.write_text("reader\nhunter2\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def server():
    with bmc_server() as made:
        yield made


def recorded(name: str) -> bytes:
    return page((RECORDED / f"redfish-{name}.json").read_bytes())


def asked(server, credentials, *, chassis=(), url=None, timeout_s=5.0, **more):
    """One question of a fresh source to the server."""
    config = {
        "agent.redfish_url": server.url if url is None else url,
        "agent.redfish_credentials": str(credentials),
        "agent.redfish_chassis": list(chassis), "agent.bmc_timeout_s": timeout_s,
        "agent.bmc_period_s": 0.0, "agent.redfish_ca": "", "agent.redfish_verify": True,
        **{f"agent.{key}": value for key, value in more.items()},
    }  # fmt: skip
    source = redfish.source(config)
    assert source.slow
    (reading,) = source.read()
    assert reading.part == "node"
    assert (reading.power_mw is None) != (reading.fault is None)
    return reading


@pytest.mark.parametrize(
    ("page_name", "file", "power_mw"),
    [
        ("Power", "power-one", 301_500),
        ("Power", "power-first-is-whole", 1_510_000),
        ("EnvironmentMetrics", "metrics", 5_012_250),
    ],
)
def test_the_power_of_the_only_chassis(server, credentials, page_name, file, power_mw) -> None:
    server.pages[CHASSIS] = collection("Self")
    server.pages[f"{CHASSIS}/Self/{page_name}"] = recorded(file)
    assert asked(server, credentials).power_mw == power_mw
    token = base64.b64encode(b"reader:hunter2").decode()
    assert all(f"Authorization: Basic {token}\r\n" in head for head in server.headers)


def test_metrics_without_a_reading_leave_it_to_the_older_page(server, credentials) -> None:
    server.pages[CHASSIS] = collection("1", "Drawer")
    server.pages[f"{CHASSIS}/1/EnvironmentMetrics"] = recorded("metrics-null")
    server.pages[f"{CHASSIS}/1/Power"] = recorded("power-one")
    server.pages[f"{CHASSIS}/Drawer/EnvironmentMetrics"] = recorded("metrics-null")
    assert asked(server, credentials).power_mw == 301_500


def test_of_several_chassis_the_site_says_which(server, credentials) -> None:
    """A board of GPUs inside the node tells its power too: adding both counts it twice."""
    server.pages[CHASSIS] = collection("Node", "GPU_Board")
    server.pages[f"{CHASSIS}/Node/Power"] = recorded("power-first-is-whole")
    server.pages[f"{CHASSIS}/GPU_Board/Power"] = recorded("power-one")
    fault = asked(server, credentials).fault
    assert "several chassis" in fault
    assert "GPU_Board" in fault
    assert asked(server, credentials, chassis=["Node"]).power_mw == 1_510_000
    assert asked(server, credentials, chassis=["Node", "GPU_Board"]).power_mw == 1_811_500
    assert "tells no power" in asked(server, credentials, chassis=["Node", "Gone"]).fault


def test_once_found_only_that_page_is_asked(server, credentials) -> None:
    server.pages[CHASSIS] = collection("Self")
    server.pages[f"{CHASSIS}/Self/Power"] = recorded("power-one")
    place = redfish.parse_url(server.url)
    bmc = redfish.Redfish(place, credentials, (), 5.0, None)
    assert [bmc.power_mw(), bmc.power_mw(), bmc.power_mw()] == 3 * [301_500]
    assert server.asked.count(f"{CHASSIS}/Self/Power") == 3
    assert server.asked.count(CHASSIS) == 1


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (page(b"x" * 2_000_000), "more than"),
        (b"HTTP/1.1 308 Permanent Redirect\r\nLocation: http://elsewhere.example/\r\n\r\n", "308"),
        (page(b"<html>login</html>"), "not understood"),
        (page(b"[" * 100_000), "not understood"),
        (page(b"\xff\xfe{"), "not understood"),
        (page({"PowerControl": [{"PowerConsumedWatts": "301"}]}), "not understood"),
        (page({"PowerControl": [{"PowerConsumedWatts": 1e300}]}), "cannot be"),
        (page({"PowerControl": [{"PowerConsumedWatts": -301}]}), "cannot be"),
        (page({"PowerControl": [{"PowerConsumedWatts": 0}]}), "cannot be"),
        (page({"PowerControl": [{"PowerConsumedWatts": None}]}), "no power"),
        (page({"PowerControl": []}), "no power"),
        (page({}, "401 Unauthorized"), "401"),
        (b"\x00" * 100, "no answer in HTTP"),
        (b"", "no answer in HTTP"),
    ],
)
def test_a_hostile_answer_is_a_fault(server, credentials, answer, fault) -> None:
    server.pages[f"{CHASSIS}/Self/Power"] = answer
    reading = asked(server, credentials, chassis=["Self"])
    assert fault in reading.fault
    assert "hunter2" not in reading.fault


def test_a_collection_cannot_send_us_elsewhere(server, credentials) -> None:
    names = ("a/../b", "..", "a b", "a\r\nX: y", "")
    paths = ["http://elsewhere.example/x", "/redfish/v1/Systems/1"]
    paths += [f"{CHASSIS}/{name}" for name in names]
    server.pages[CHASSIS] = page({"Members": [{"@odata.id": path} for path in paths]})
    assert "no chassis" in asked(server, credentials).fault
    assert server.asked == [CHASSIS]


def test_a_slow_bmc_is_given_up_in_time(server, credentials) -> None:
    server.pages[f"{CHASSIS}/Self/EnvironmentMetrics"] = lambda _peer: server.done.wait(20)
    begun = time.monotonic()
    fault = asked(server, credentials, chassis=["Self"], timeout_s=0.2).fault
    assert "does not answer" in fault
    assert time.monotonic() - begun < 5
    server.done.set()


def test_a_password_that_others_may_read_is_not_used(server, credentials) -> None:
    credentials.chmod(0o644)
    assert "chmod 600" in asked(server, credentials).fault
    assert server.asked == []


def test_two_lines_are_needed(server, credentials) -> None:
    credentials.write_text("reader\n")
    assert "two lines" in asked(server, credentials).fault


@pytest.mark.parametrize(
    "url", ["", "bmc", "http://bmc.example", "https://u:p@bmc", "https://bmc/redfish/v1"]
)
def test_the_password_does_not_go_out_in_clear(url, credentials) -> None:
    with pytest.raises(ConfigError, match=r"agent\.redfish_url"):
        asked(None, credentials, url=url)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "ü", "a\r\nX: y"])
def test_a_strange_chassis_is_refused_at_the_start(name, credentials) -> None:
    with pytest.raises(ConfigError, match=r"agent\.redfish_chassis"):
        asked(None, credentials, url="https://bmc.example", chassis=[name])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
            "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]  # fmt: skip
    call(argv, timeout_s=30)
    return key, cert


def test_the_certificate_is_checked_unless_the_site_says_no(certificate, credentials) -> None:
    key, cert = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with bmc_server(context) as server:
        server.pages[f"{CHASSIS}/Self/Power"] = recorded("power-one")
        once = {"chassis": ["Self"]}
        assert "certificate" in asked(server, credentials, **once).fault.lower()
        assert server.asked == []
        known = asked(server, credentials, redfish_ca=str(cert), **once)
        assert known.power_mw == 301_500
        unchecked = asked(server, credentials, redfish_verify=False, **once)
        assert unchecked.power_mw == 301_500
        other = server.url.replace("127.0.0.1", "localhost")
        assert "match" in asked(server, credentials, url=other, redfish_ca=str(cert), **once).fault


def test_a_file_without_certificates_is_named(credentials) -> None:
    with pytest.raises(ConfigError, match=r"agent\.redfish_ca"):
        asked(None, credentials, url="https://bmc.example", redfish_ca=str(credentials))
