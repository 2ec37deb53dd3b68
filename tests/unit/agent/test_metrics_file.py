# SPDX-License-Identifier: Apache-2.0
"""What the agent tells node_exporter."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.metrics_file import MetricsFile
from fairwatt.accounting.agent.records import Entry
from fairwatt.core.delivery import Delivery
from fairwatt.core.post import Answer
from tests.unit.accounting.samples import Node


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal", first_seq=1)
    yield journal
    journal.close()


def keeper():
    hostile = 'GPU-1"} 1\nevil 1'
    return SimpleNamespace(
        status=lambda: {
            "devices": 8,
            "jobs": [7, 9],
            "faults": {hostile: "away"},
            "idle_power": {hostile: {"by": "learnt"}, "GPU-2": {"by": "catalogue"}},
        }
    )


def told(path):
    lines = path.read_text().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_before_and_after_a_delivery(tmp_path, journal):
    node = Node()
    journal.append([Entry(event=node.window("GPU-1", t, t + 1)) for t in range(3)])
    delivery = Delivery(journal, tmp_path / "refused")
    path = tmp_path / "fairwatt.prom"
    file = MetricsFile(path, journal, keeper(), delivery)
    file.write()
    before = told(path)
    assert before["fairwatt_agent_devices"] == "8"
    assert before["fairwatt_agent_jobs"] == "2"
    assert before["fairwatt_agent_faulty_devices"] == "1"
    assert [before[f'fairwatt_agent_idle_power_devices{{by="{by}"}}']
            for by in ("learnt", "catalogue", "unknown")] == ["1", "1", "0"]  # fmt: skip
    assert int(before["fairwatt_agent_spool_bytes"]) == journal.size > 0
    assert before["fairwatt_agent_on_disk"] == before["fairwatt_agent_delivery_healthy"] == "1"
    # Never delivered: not 0.
    assert "fairwatt_agent_undelivered_events" not in before
    assert "fairwatt_agent_last_delivery_timestamp_seconds" not in before
    batch = journal.pending(1 << 20, 2)
    delivery.answered(batch, Answer(200, ""))
    file.write()
    assert told(path)["fairwatt_agent_undelivered_events"] == "1"
    assert float(told(path)["fairwatt_agent_last_delivery_timestamp_seconds"]) > 1.7e9
    delivery.answered(batch, Answer(429, "", 5))
    file.write()
    assert told(path)["fairwatt_agent_delivery_healthy"] == "0"
    assert path.stat().st_mode & 0o777 == 0o644
    assert "evil" not in path.read_text()


def test_a_folder_that_is_not_there_is_told_once(tmp_path, journal, caplog):
    path = tmp_path / "none" / "fairwatt.prom"
    file = MetricsFile(path, journal, keeper(), Delivery(journal, tmp_path / "refused"))
    file.write()
    file.write()
    assert len([r for r in caplog.records if "metrics cannot be written" in r.message]) == 1
    path.parent.mkdir()
    file.write()
    assert path.exists()
