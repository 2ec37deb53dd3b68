# SPDX-License-Identifier: Apache-2.0
"""What is drained and undrained: proven faults only, our own reason only, never too many."""

from __future__ import annotations

from msgspec.structs import replace

from fairwatt.core.verdict import Finding
from fairwatt.prolog.health.drain import (
    HOUR_MS,
    NodeView,
    Record,
    Step,
    decide,
    is_beyond_limit,
    stamped,
)

NOW = 10 * HOUR_MS
LOST = Finding(
    code="FWH101",
    severity="bad",
    action="drain",
    device="GPU-a",
    text="the GPU is lost",
    since_ms=1,
    confirmed=True,
)
ECC = replace(LOST, code="FWH203", text="3 errors")
REASON = "fairwatt FWH101 GPU-a: the GPU is lost"
IDLE = NodeView(name="n1", state="idle")
OURS = NodeView(name="n1", state="drained", reason=REASON, since_ms=NOW)
SURE = Record(reason=REASON, code="FWH101", device="GPU-a", sure=True)


NEW = Record()


def step(*wanted: Finding, record=NEW, view=IDLE, others=(), **options) -> Step:
    known = {"healed": False, "limit": 2, "now_ms": NOW, **options}
    return decide(wanted, record, view, others, **known)


def other(number: int, age_ms: int = 0, reason: str = "fairwatt FWH203 GPU-x: y") -> NodeView:
    return NodeView(name=f"o{number}", state="drained", reason=reason, since_ms=NOW - age_ms)


def test_a_proven_fault_drains_with_code_and_device() -> None:
    found = step(LOST)
    assert (found.deed, found.drain, found.record.reason) == ("drain", "permitted", REASON)
    assert not found.record.sure


def test_nothing_wanted_does_nothing() -> None:
    assert step() == Step(record=Record())


def test_a_node_that_is_drained_for_another_reason_is_never_touched() -> None:
    for reason in ("maintenance", "Prolog error", f"{REASON} - ticket 7", "fairwatt FWH9"):
        view = replace(OURS, reason=reason)
        assert step(LOST, view=view).deed == "none"
        assert step(view=view, healed=True).deed == "none"
        assert step(view=view, record=SURE, healed=True).deed == "none"


def test_our_own_reason_is_undrained_when_it_is_healed_and_nothing_else_is_sick() -> None:
    assert step(view=OURS, record=SURE, healed=True).deed == "undrain"
    assert step(view=OURS, record=SURE, healed=False).deed == "none"
    assert step(ECC, view=OURS, record=SURE, healed=True).drain == "drained"


def test_a_node_that_an_admin_resumed_is_his_until_the_trouble_is_over() -> None:
    resumed = step(LOST, record=SURE, view=IDLE)
    assert (resumed.deed, resumed.drain) == ("none", "yielded")
    again = step(LOST, record=resumed.record)
    assert (again.deed, again.drain) == ("none", "yielded")
    over = step(record=again.record)
    assert over.record == Record()
    assert step(LOST, record=over.record).deed == "drain"


def test_a_reboot_that_did_not_help_drains_again() -> None:
    """scontrol reboot nextstate=resume: nobody decided to live with the trouble."""
    before = replace(SURE, boot_id="boot 1", yielded=(ECC.key,))
    assert step(LOST, record=before, boot_id="boot 2").deed == "drain"
    assert step(ECC, record=before, boot_id="boot 2").deed == "drain"
    still = step(LOST, record=before, view=OURS, boot_id="boot 2")
    assert (still.drain, still.record.boot_id) == ("drained", "boot 2")
    resumed = step(LOST, record=still.record, boot_id="boot 2")
    assert resumed.drain == "yielded"
    assert step(LOST, record=resumed.record, boot_id="boot 2").drain == "yielded"
    assert step(record=before, view=OURS, healed=True, boot_id="boot 2").deed == "undrain"


def test_a_node_that_is_drained_already_still_stops_jobs_on_the_broken_device() -> None:
    assert step(LOST, view=replace(OURS, reason="maintenance")).drain == "foreign"


def test_another_trouble_drains_although_an_admin_let_the_first_be() -> None:
    found = step(LOST, ECC, record=Record(yielded=(LOST.key,)))
    assert (found.deed, found.record.code) == ("drain", "FWH203")


def test_a_drain_that_was_cut_short_is_found_again_or_done_again() -> None:
    """Killed between keeping the record and scontrol, or just after it."""
    unsure = replace(SURE, sure=False)
    assert step(LOST, record=unsure, view=IDLE).deed == "drain"
    assert step(LOST, record=unsure, view=OURS).record.sure
    assert step(record=unsure, view=OURS, healed=True).deed == "undrain"
    assert step(record=unsure, view=IDLE) == Step(record=Record())


def test_lost_memory_takes_its_own_reason_for_its_own() -> None:
    found = step(LOST, view=OURS)
    assert (found.deed, found.drain, found.record.sure) == ("none", "drained", True)


def test_no_more_than_the_limit_within_an_hour() -> None:
    assert step(LOST, others=[other(1)]).deed == "drain"
    assert step(LOST, others=[other(1), other(2)]).drain == "limit"
    assert step(LOST, others=[other(1), other(2, HOUR_MS)]).deed == "drain"
    assert step(LOST, others=[other(1), other(2, reason="maintenance")]).deed == "drain"
    assert step(LOST, limit=0).drain == "limit"


def test_of_nodes_that_drain_at_once_the_first_stay() -> None:
    views = [other(3), other(1), other(2, age_ms=5), replace(OURS, name="o0")]
    late = [v.name for v in views if is_beyond_limit(v.name, views, limit=2, now_ms=NOW)]
    assert late == ["o3", "o1"]


def test_slurms_own_drain_after_our_prolog_gets_our_reason() -> None:
    view = replace(OURS, reason="Prolog error")
    assert step(LOST, view=view, prolog_failed_ms=NOW - 1000).deed == "drain"
    assert step(LOST, view=view, prolog_failed_ms=NOW - 700_000).deed == "none"
    assert step(LOST, view=replace(view, reason="x"), prolog_failed_ms=NOW).deed == "none"


def test_findings_are_told_what_becomes_of_them() -> None:
    alert = replace(LOST, action="alert")
    fresh = replace(LOST, confirmed=False)
    drained = Step(record=SURE, drain="drained")

    def words(step: Step | None, *, enabled: bool = True) -> list[str]:
        return [f.drain for f in stamped([alert, fresh, LOST], step, enabled=enabled)]

    assert words(drained) == ["", "confirming", "drained"]
    assert words(None) == ["", "confirming", "waiting"]
    assert words(drained, enabled=False) == ["", "confirming", "off"]
    yielded = Step(record=Record(yielded=(LOST.key,)), drain="drained")
    assert words(yielded) == ["", "confirming", "yielded"]
