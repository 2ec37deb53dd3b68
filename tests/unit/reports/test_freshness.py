# SPDX-License-Identifier: Apache-2.0
"""How old the data is said to be."""

from __future__ import annotations

from fairwatt.accounting.reports.freshness import as_of_ts
from fairwatt.accounting.store import set_meta
from tests.unit.reports.tiny import CLUSTER, add_run


def test_data_is_as_old_as_the_last_import_not_as_the_last_run(store):
    """On a cluster that idles, or whose jobs run for weeks, no run need have ended lately."""
    assert as_of_ts(store.conn, CLUSTER) is None
    add_run(store, end_ts=1_000_500)
    assert as_of_ts(store.conn, CLUSTER) == 1_000_500
    set_meta(store.conn, f"sync.{CLUSTER}.until_ts", "2000000")
    assert as_of_ts(store.conn, CLUSTER) == 2_000_000
    assert as_of_ts(store.conn, "other") == 1_000_500
