# SPDX-License-Identifier: Apache-2.0
"""Every setting of fairwatt: its key, type, default and what it means.

One table serves the loader, the documentation and the test that compares the two.
"""

from __future__ import annotations

from fairwatt.core.setting import Setting
from fairwatt.core.settings_accounting import ACCOUNTING, IDLE_POLICIES
from fairwatt.core.settings_node import NODE
from fairwatt.core.settings_submit import SUBMIT

__all__ = ["IDLE_POLICIES", "SETTINGS", "Setting"]

SETTINGS: tuple[Setting, ...] = (*SUBMIT, *NODE, *ACCOUNTING)
