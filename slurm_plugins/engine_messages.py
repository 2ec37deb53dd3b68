# SPDX-License-Identifier: Apache-2.0
"""The engine's own messages: the policy as a whole, and requests that nobody can read."""

from __future__ import annotations

from fairwatt.slurm_plugins.message import Message

__all__ = [
    "ENGINE_MESSAGES",
    "FW001",
    "FW002",
    "FW003",
    "FW004",
    "FW005",
    "FW006",
    "FW007",
    "FW008",
    "FW009",
    "FW304",
]

FW001 = Message(
    "FW001",
    "Policy not applied",
    "the site's GPU policy could not be applied (internal error in rule {rule}); "
    "the job goes on unchanged",
    "Nothing for the user; the admin finds the error in policyd's log.",
)
FW002 = Message(
    "FW002",
    "Facts missing or old",
    "the site's GPU policy could not be applied (the cluster's facts are {age}); "
    "the job goes on unchanged",
    "The admin looks why policyd cannot read nodes and partitions from slurmctld.",
)
FW003 = Message(
    "FW003",
    "Field too long",
    "{field} is too long; shorten it",
    "Write node lists folded: node[001-200].",
)
FW004 = Message(
    "FW004",
    "Edit too long",
    "the rewritten {field} would be too long for Slurm; name a GPU type",
    "Name a GPU type or a smaller partition.",
)
FW005 = Message(
    "FW005",
    "srun cannot be rewritten",
    "{asked} is {given} here, but srun's own step would still ask for {asked}; write {offer}",
    "Use the options that the message names, or sbatch or salloc. "
    "Where the admin installs cli_filter.lua, srun works as it is.",
)
FW006 = Message(
    "FW006",
    "Place not known",
    "{what} is not known to the site's GPU policy; the request is left as it is",
    "Check the name; where it is new, submit again in a minute to have the policy applied.",
)
FW007 = Message(
    "FW007",
    "Policy not applied, job refused",
    "the site's GPU policy could not be applied (internal error in rule {rule}); "
    "the job is refused, try again in a minute",
    "The admin finds the error in policyd's log; the rule's `fail` says open or closed.",
)
FW008 = Message(
    "FW008",
    "salloc's shell keeps what was asked",
    "{asked} is {given} here, but srun in this shell may still ask for {asked}: "
    "first `unset {names}`",
    "Unset the variable before the first srun. With --gres there is no such variable. "
    "Where the admin installs cli_filter.lua, srun works as it is.",
)
FW009 = Message(
    "FW009",
    "srun or salloc cannot be told",
    "{asked} is {given} here; with salloc that is all, but srun's own step would still ask for "
    "{asked} and fail: write {offer}",
    "For srun use the options that the message names; for salloc there is nothing to do. "
    "A job without a name of its own (-J) is told apart.",
)
FW304 = Message(
    "FW304",
    "Malformed request",
    "{field} cannot be read{at}; {remedy}",
    "Write name[:type][:count], for example gpu:2 or gpu:20gb:1.",
)

ENGINE_MESSAGES = (FW001, FW002, FW003, FW004, FW005, FW006, FW007, FW008, FW009, FW304)
"""All of them; FW003 is said by job_submit.lua itself."""
