# SPDX-License-Identifier: Apache-2.0
"""What the submit policy wrote about a request into the job's comment.

>>> read_decision('{"v":1,"asked":"gpu:20gb:1","given":"gpu:a:1","notes":[["FW101","why"]]}').asked
'gpu:20gb:1'
"""

from __future__ import annotations

import msgspec

from fairwatt.core.events import RuleNote

__all__ = ["Decision", "read_decision", "rule_notes"]

MODES_IN_NOTES = ("audit", "warn")


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One rewriting: GRES before and after, and (code, sentence) for each rule that spoke.

    `id` finds the whole decision in the store. `next` are flavours (GRES type, partition) still
    to try, best first; `widened` what the updater did: (epoch seconds, from, to).
    """

    v: int = 1
    id: str | None = None
    asked: str | None = None
    given: str | None = None
    notes: tuple[tuple[str, str], ...] = ()
    next: tuple[tuple[str, str | None], ...] = ()
    widened: tuple[tuple[int, str, str], ...] = ()


_UNREADABLE = Decision(notes=(("?", "The note that the submit hook left cannot be read."),))


def read_decision(text: str | None) -> Decision | None:
    """Read `run.decision`; None if the hook changed nothing, a note saying so if it is broken."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Decision)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return _UNREADABLE


def rule_notes(decision: Decision) -> tuple[RuleNote, ...]:
    """Return the comment's notes; it does not name the rules, and modes only by a first word."""
    return tuple(_rule_note(code, text) for code, text in decision.notes)


def _rule_note(code: str, text: str) -> RuleNote:
    head, colon, rest = text.partition(": ")
    if colon and head in MODES_IN_NOTES:
        return RuleNote("", head, code, rest)
    return RuleNote("", "enforce", code, text)
