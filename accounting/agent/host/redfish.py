# SPDX-License-Identifier: Apache-2.0
"""The node's power by Redfish: HTTPS to its BMC, in watts, integrated.

A chassis tells its power in EnvironmentMetrics (PowerWatts) or, in older and most other BMCs, in
Power (PowerControl). EnergykWh is not used: its steps of 1 Wh and more are minutes of a node.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fairwatt.accounting.agent.host.bmc import BmcSource, plausible_mw
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError, DeviceError
from fairwatt.core.http_get import HttpPlace, http_get, parse_url
from fairwatt.core.secret_file import read_secret

if TYPE_CHECKING:
    import ssl

__all__ = ["Redfish", "source"]

LONGEST_ANSWER = 1 << 20
MOST_CHASSIS = 32
CHASSIS = "/redfish/v1/Chassis"
_CHASSIS_PATH = re.compile(r"/redfish/v1/Chassis/[A-Za-z0-9_][A-Za-z0-9._~%:+-]*/?")
_T = TypeVar("_T")


class _Link(msgspec.Struct, rename={"path": "@odata.id"}):
    path: str = ""


class _Collection(msgspec.Struct, rename="pascal"):
    members: list[_Link] = []


class _Sensor(msgspec.Struct, rename="pascal"):
    reading: float | None = None


class _Metrics(msgspec.Struct, rename="pascal"):
    power_watts: _Sensor | None = None


class _Control(msgspec.Struct, rename="pascal"):
    power_consumed_watts: float | None = None


class _Power(msgspec.Struct, rename="pascal"):
    power_control: list[_Control] = []


class Redfish:
    """Asks one BMC; which of its pages tells the power is found at the first question.

    Args:
        place: the BMC.
        credentials: file with user and password.
        chassis: ids of the chassis that are the node; empty: the only one that tells power.
        timeout_s: for each page.
        tls: how the BMC's certificate is checked; None for plain http.
    """

    def __init__(
        self,
        place: HttpPlace,
        credentials: Path,
        chassis: Sequence[str],
        timeout_s: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._place = place
        self._credentials = credentials
        self._chassis = tuple(chassis)
        self._timeout_s = timeout_s
        self._tls = tls
        self._pages: tuple[str, ...] = ()

    def power_mw(self) -> int:
        """Return the node's power in mW.

        Raises:
            ConfigError: the file of the password is missing or readable by others.
            DeviceError: no answer, one without power, or of several chassis which is not told.
        """
        watts = [self._watts(page) for page in self._pages]
        if not watts or None in watts:
            self._pages = ()
            found = self._found()
            self._pages, watts = tuple(found), list(found.values())
        power_mw = plausible_mw(sum(value for value in watts if value is not None))
        if power_mw is None:
            raise self._fault("the BMC tells a power that cannot be", watts)
        return power_mw

    def _found(self) -> dict[str, float]:
        """Return the pages that tell the power of the node's chassis, with the watts."""
        found = {}
        for path in self._paths():
            for page in (f"{path}/EnvironmentMetrics", f"{path}/Power"):
                watts = self._watts(page)
                if watts is not None:
                    found[page] = watts
                    break
            else:
                if self._chassis:
                    raise self._fault("a chassis tells no power", path)
        if not found:
            raise self._fault("no chassis tells its power", self._place.netloc)
        if len(found) > 1 and not self._chassis:
            names = [page.split("/")[-2] for page in found]
            raise self._fault("several chassis tell power: say which are the node", names)
        return found

    def _paths(self) -> list[str]:
        if self._chassis:
            return [f"{CHASSIS}/{name}" for name in self._chassis]
        members = self._asked(CHASSIS, _Collection)
        paths = [link.path for link in members.members] if members else []
        return [path.rstrip("/") for path in paths if _CHASSIS_PATH.fullmatch(path)][:MOST_CHASSIS]

    def _watts(self, page: str) -> float | None:
        """Return the watts that a page tells; None where there is no such page, or none on it."""
        if page.endswith("/EnvironmentMetrics"):
            metrics = self._asked(page, _Metrics)
            return metrics.power_watts.reading if metrics and metrics.power_watts else None
        power = self._asked(page, _Power)
        # The first is the whole; BMCs that list more go on with parts of it.
        return (
            power.power_control[0].power_consumed_watts if power and power.power_control else None
        )

    def _asked(self, path: str, kind: type[_T]) -> _T | None:
        """Return a page of the BMC; None where it has no such page."""
        place = HttpPlace(self._place.scheme, self._place.host, self._place.port, path)
        try:
            status, body = http_get(
                place,
                headers=self._headers(),
                timeout_s=self._timeout_s,
                longest=LONGEST_ANSWER,
                tls=self._tls,
            )
        except OSError as error:
            raise self._fault("the BMC does not answer", str(error)) from error
        if status in (404, 405):
            return None
        if status != 200:
            raise self._fault(f"the BMC answers {path} with a status that is not 200", status)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise self._fault(
                f"the BMC's answer to {path} is not understood", str(error)
            ) from error

    def _headers(self) -> dict[str, str]:
        user, *rest = read_secret(self._credentials)
        if len(rest) != 1:
            raise ConfigError(
                "must hold two lines", place=str(self._credentials), remedy="user, then password"
            )
        token = base64.b64encode(f"{user}:{rest[0]}".encode()).decode("ascii")
        return {"Authorization": f"Basic {token}", "Accept": "application/json"}

    def _fault(self, problem: str, value: object) -> DeviceError:
        return DeviceError(
            problem,
            place=f"redfish {self._place.netloc}",
            value=value,
            remedy="check agent.redfish_url, redfish_chassis, redfish_ca and the BMC's user",
        )


def source(config: Config) -> BmcSource:
    """Return the source as the settings say.

    Raises:
        ConfigError: agent.redfish_url is none, or would send the password in clear; a strange
            agent.redfish_chassis.
    """
    url = config["agent.redfish_url"]
    place = parse_url(url)
    if place is None or place.path != "/" or (place.scheme == "http" and not place.is_loopback):
        raise ConfigError(
            "no address of a BMC",
            place="agent.redfish_url",
            value=url,
            remedy="give https://HOST or https://HOST:PORT, without a path or user",
        )
    chassis = config["agent.redfish_chassis"]
    strange = [name for name in chassis if not _CHASSIS_PATH.fullmatch(f"{CHASSIS}/{name}")]
    if strange:
        raise ConfigError(
            "no id of a chassis",
            place="agent.redfish_chassis",
            value=strange[0],
            remedy=f"give the last part of a path below {CHASSIS}",
        )
    redfish = Redfish(
        place,
        Path(config["agent.redfish_credentials"]),
        chassis,
        max(0.1, config["agent.bmc_timeout_s"]),
        _tls(config) if place.scheme == "https" else None,
    )
    return BmcSource("redfish", redfish.power_mw, config["agent.bmc_period_s"])


def _tls(config: Config) -> ssl.SSLContext:
    import ssl  # 2 MB that only this source needs

    file = config["agent.redfish_ca"]
    try:
        context = ssl.create_default_context(cafile=file or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"holds no certificates: {error.strerror or error}",
            place="agent.redfish_ca",
            value=file,
            remedy="give a PEM file",
        ) from error
    if not config["agent.redfish_verify"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
