# SPDX-License-Identifier: Apache-2.0
"""The numbered messages of the submit policy as a table; they are no secret and need no scope."""

from __future__ import annotations

from fairwatt.accounting.reports.columns import column
from fairwatt.core.coded import coded_messages
from fairwatt.core.records import Table

__all__ = ["messages_report"]


def messages_report(version: int) -> Table:
    """Return every message with what it means and what to do; `version` is the data's."""
    columns = (
        column("code", "Message", "text", "Its number, which keeps its meaning for ever."),
        column("title", "When", "text", "When it appears."),
        column("text", "Text", "text", "Words in braces are filled in."),
        column("remedy", "What to do", "text", "What the reader can do."),
    )
    rows = [(each.code, each.title, each.text, each.remedy) for each in coded_messages().values()]
    return Table(
        name="messages", title="Messages", columns=columns, rows=rows, data_version=version
    )
