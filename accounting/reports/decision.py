# SPDX-License-Identifier: Apache-2.0
"""What the submit hook wrote about a request: asked, given, and the numbered reasons.

>>> read_decision('{"v":1,"asked":"gpu:20gb:1","given":"gpu:a:1","notes":[["FW101","why"]]}').asked
'gpu:20gb:1'
"""

from __future__ import annotations

import msgspec

__all__ = ["Decision", "read_decision"]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One rewriting: GRES before and after, and (code, sentence) for each rule that spoke."""

    v: int = 1
    asked: str | None = None
    given: str | None = None
    notes: tuple[tuple[str, str], ...] = ()


_UNREADABLE = Decision(notes=(("?", "The note that the submit hook left cannot be read."),))


def read_decision(text: str | None) -> Decision | None:
    """Read `run.decision`; None if the hook changed nothing, a note saying so if it is broken."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Decision)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return _UNREADABLE
