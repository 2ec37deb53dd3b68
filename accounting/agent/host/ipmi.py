# SPDX-License-Identifier: Apache-2.0
"""The node's power by IPMI DCMI, through freeipmi's `ipmi-dcmi` or `ipmitool`.

The tools ask the BMC over the host's own interface (/dev/ipmi0), for root. The answer is in whole
watts, takes 0.1 s and more, and is integrated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from fairwatt.accounting.agent.host.bmc import BmcSource, plausible_mw
from fairwatt.core.call import call
from fairwatt.core.config import Config
from fairwatt.core.errors import DeviceError

__all__ = ["parse_power", "source"]

_POWER = re.compile(
    r"^[ \t]*(?:current power|instantaneous power reading)[ \t]*:[ \t]*(\d{1,6})[ \t]*watts?"
    r"[ \t\r]*$",
    re.IGNORECASE | re.MULTILINE,
)
_STATE = re.compile(
    r"^[ \t]*(?:power measurement|power reading state is)[ \t]*:([^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
_ON = ("active", "activated")
LONGEST = 65_536


def source(config: Config) -> BmcSource:
    """Return the source as the settings say."""
    argv, timeout_s = config["agent.ipmi_command"], config["agent.bmc_timeout_s"]
    ask = partial(_power_mw, argv, max(0.1, timeout_s))
    return BmcSource("ipmi", ask, config["agent.bmc_period_s"])


def _power_mw(argv: Sequence[str], timeout_s: float) -> int:
    """Run the tool and return the power in mW.

    Raises:
        CommandError: the tool is missing, failed, or took too long.
        DeviceError: it tells no power.
    """
    # The words that are looked for must be the English ones.
    return parse_power(call(argv, timeout_s=timeout_s, env={"LC_ALL": "C"}).stdout)


def parse_power(text: str) -> int:
    """Return the momentary power in mW of what either tool prints.

    Raises:
        DeviceError: there is none, the BMC does not measure, or the number cannot be.
    """
    text = text[:LONGEST]
    found, state = _POWER.search(text), _STATE.search(text)
    if found is None:
        raise _fault("the BMC tells no power", text.strip())
    if state is not None and state[1].strip().lower() not in _ON:
        raise _fault("the BMC does not measure power now", state[1].strip())
    power_mw = plausible_mw(int(found[1]))
    if power_mw is None:
        raise _fault("the BMC tells a power that cannot be", found[1])
    return power_mw


def _fault(problem: str, value: str) -> DeviceError:
    return DeviceError(
        problem,
        place="ipmi",
        value=value,
        remedy="try agent.ipmi_command by hand; without DCMI take ipmi out of agent.host_sources",
    )
