# SPDX-License-Identifier: Apache-2.0
"""What a setting is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Setting"]


@dataclass(frozen=True)
class Setting:
    """One setting: dotted key, type (bool, int, float, str, list of int or str), default, doc."""

    key: str
    type: type
    default: Any
    doc: str
    choices: tuple[str, ...] = ()
