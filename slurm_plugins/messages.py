# SPDX-License-Identifier: Apache-2.0
"""Every numbered message of the submit side: code, when it appears, its text and the remedy.

Codes never change their meaning. docs/messages.md is this table; a test compares the two.

>>> note("FW302", asked="a1000", near="a100", where="partition gpu").text
'no GPU type a1000 in partition gpu; nearest: a100'
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

__all__ = ["MESSAGES", "Message", "Note", "as_markdown", "note", "shown"]

MAX_SHOWN_CHARS = 80


@dataclass(frozen=True)
class Message:
    """One numbered message: `text` is a format string, `remedy` is what the reader can do."""

    code: str
    title: str
    text: str
    remedy: str


class Note(msgspec.Struct, frozen=True):
    """A message with its values filled in: one printable ASCII line."""

    code: str
    text: str


_TABLE = (
    Message(
        "FW001",
        "Policy not applied",
        "the site's GPU policy could not be applied (internal error in rule {rule}); "
        "the job goes on unchanged",
        "Nothing for the user; the admin finds the error in policyd's log.",
    ),
    Message(
        "FW002",
        "Facts missing or old",
        "the site's GPU policy could not be applied (the cluster's facts are {age}); "
        "the job goes on unchanged",
        "The admin looks why policyd cannot read nodes and partitions from slurmctld.",
    ),
    Message(
        "FW003",
        "Field too long",
        "{field} is too long; shorten it",
        "Write node lists folded: node[001-200].",
    ),
    Message(
        "FW004",
        "Edit too long",
        "the rewritten {field} would be too long for Slurm; name a GPU type",
        "Name a GPU type or a smaller partition.",
    ),
    Message(
        "FW005",
        "srun cannot be rewritten",
        "{asked} is {given} here, but srun's own step would still ask for {asked}; write {offer}",
        "Use the options that the message names, or sbatch or salloc. "
        "Where the admin installs cli_filter.lua, srun works as it is.",
    ),
    Message(
        "FW006",
        "Place not known",
        "{what} is not known to the site's GPU policy; the request is left as it is",
        "Check the name; where it is new, submit again in a minute to have the policy applied.",
    ),
    Message(
        "FW007",
        "Policy not applied, job refused",
        "the site's GPU policy could not be applied (internal error in rule {rule}); "
        "the job is refused, try again in a minute",
        "The admin finds the error in policyd's log; the rule's `fail` says open or closed.",
    ),
    Message(
        "FW101",
        "Memory became a type",
        "{asked} -> {given}: the smallest with {memory} in {where}",
        "Nothing to do; to choose yourself, name a type.",
    ),
    Message(
        "FW102",
        "No GPU has that memory",
        "no GPU in {where} has {memory}; {offer}",
        "Ask for less, or use the partition that the message names.",
    ),
    Message(
        "FW103",
        "Not that many with that memory",
        "{asked}: {where} has no room for that many GPUs with {memory}; {offer}",
        "Ask for fewer GPUs, or spread them over more nodes.",
    ),
    Message(
        "FW104",
        "A count that looks like memory",
        "{asked} asks for {count} GPUs; for memory write {offer}",
        "Write the unit as gb and add a count: gpu:20gb:1.",
    ),
    Message(
        "FW201",
        "Untyped request got a type",
        "{asked} -> {given}: {where} also has MIG slices, and {type} is its only whole GPU",
        "Nothing to do; to use a slice, name its type.",
    ),
    Message(
        "FW202",
        "Untyped request kept off slices",
        "{asked}: nodes with MIG slices are left out ({nodes})",
        "Nothing to do; to use a slice, name its type.",
    ),
    Message(
        "FW203",
        "Only slices here",
        "{asked}: {where} has only MIG slices; name one, for example {offer}",
        "Name a slice type, or use a partition with whole GPUs.",
    ),
    Message(
        "FW204",
        "Untyped request is ambiguous",
        "{asked}: {where} mixes whole GPUs and MIG slices; name a type, for example {offer}",
        "Name a GPU type.",
    ),
    Message(
        "FW205",
        "Untyped entry follows the typed one",
        "{asked} -> {given}: one job cannot mix typed and untyped GPUs",
        "Nothing to do; write the type in every GPU option.",
    ),
    Message(
        "FW206",
        "Change would reach slices",
        "{asked}: {where} has MIG slices; name a type, or exclude them: ExcNodeList={nodes}",
        "Change the nodes to exclude in the same scontrol update, together with your own.",
    ),
    Message(
        "FW301",
        "Type's spelling mended",
        "{asked} -> {given}: {type} is how this cluster spells it",
        "Nothing to do.",
    ),
    Message(
        "FW302",
        "Unknown type",
        "no GPU type {asked} in {where}; nearest: {near}",
        "Use one of the types that the message names.",
    ),
    Message(
        "FW303",
        "Type in another partition",
        "no GPU type {asked} in {where}; it is in {partitions}: add -p {first}",
        "Use a partition that has the type.",
    ),
    Message(
        "FW304",
        "Malformed request",
        "{field} cannot be read{at}; {remedy}",
        "Write name[:type][:count], for example gpu:a100:2.",
    ),
    Message(
        "FW305",
        "More than a node has",
        "{asked}: that is {need} on one node, the most in {where} is {most}; {offer}",
        "Ask for fewer per node and for more nodes.",
    ),
    Message(
        "FW306",
        "More than there are",
        "{asked}: that is {need} in all, {where} has {most}; {offer}",
        "Ask for fewer, or use another partition.",
    ),
    Message(
        "FW307",
        "No GPU here",
        "{where} has no GPU; partitions with GPUs: {partitions}",
        "Use a partition that has GPUs.",
    ),
    Message(
        "FW308",
        "Partition set",
        "{asked}: partition set to {partition}, as {default} has no such GPU",
        "Nothing to do; name a partition with -p to choose yourself.",
    ),
)

MESSAGES = {message.code: message for message in _TABLE}


def note(code: str, **values: object) -> Note:
    """Fill message `code` with values; hostile text is made printable and cut.

    Raises:
        KeyError: no such code, or a value that its text names is missing.
    """
    safe = {name: shown(str(value)) for name, value in values.items()}
    return Note(code, MESSAGES[code].text.format(**safe))


def shown(text: str, limit: int = MAX_SHOWN_CHARS) -> str:
    """Return user-controlled text as printable ASCII of at most `limit` characters."""
    clean = "".join(char if " " <= char <= "~" else "?" for char in text)
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def as_markdown() -> str:
    """Return docs/messages.md."""
    rows = [f"| {m.code} | {m.title} | `{_cell(m.text)}` | {m.remedy} |" for m in _TABLE]
    return "\n".join([_HEAD, *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_HEAD = """# Messages of the submit hook

Each line that sbatch, srun, salloc or scontrol shows starts with `fairwatt` and one of these
codes. FW0xx: the policy itself; FW1xx: ask by memory; FW2xx: untyped requests and MIG slices;
FW3xx: types and counts. Words in braces are filled in. A code keeps its meaning for ever.

This page is written by `python -m fairwatt.slurm_plugins.messages`; do not edit it by hand.

| Code | When | Text | What to do |
|---|---|---|---|"""


if __name__ == "__main__":
    import sys

    sys.stdout.write(as_markdown())
