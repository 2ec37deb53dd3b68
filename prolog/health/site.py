# SPDX-License-Identifier: Apache-2.0
"""The checks as a site wants them; a faulty file of its never lets a check drain."""

from __future__ import annotations

import logging
from pathlib import Path

from msgspec.structs import replace

from fairwatt.core.errors import ConfigError
from fairwatt.core.verdict import Finding, one_line
from fairwatt.prolog.health.spec import CheckSpec, load_checks

__all__ = ["site_checks"]

_log = logging.getLogger(__name__)


def site_checks(path: Path) -> tuple[dict[str, CheckSpec], Finding | None]:
    """Return the checks as the site wants them.

    Where its file is wrong that is a finding, and fairwatt's own checks run without draining.
    """
    try:
        return load_checks(path), None
    except ConfigError as error:
        _log.error("%s", error)
        quiet = {name: replace(spec, action="alert") for name, spec in load_checks().items()}
        text = one_line(f"{error}; until then no check drains", 400)
        return quiet, Finding(code="FWH905", severity="unknown", text=text)
