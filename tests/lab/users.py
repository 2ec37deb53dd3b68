# SPDX-License-Identifier: Apache-2.0
"""The local users of the cluster, without a line in /etc/passwd (libnss-wrapper)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tests.lab.paths import Paths

__all__ = ["USERS", "LabUser", "find_user", "install_users"]

NSS_WRAPPER = "libnss_wrapper.so"
FIRST_UID = 47_101


@dataclass(frozen=True)
class LabUser:
    """A user: name, uid (= gid) and the account that the jobs go to by default."""

    name: str
    uid: int
    account: str


_ACCOUNT_OF = {
    "ada": "qcd",
    "ben": "qcd",
    "cleo": "optics",
    "dora": "chemistry",
    "emil": "chemistry",
    "fay": "medicine",
    "hana": "physics",
}
USERS: tuple[LabUser, ...] = tuple(
    LabUser(name, FIRST_UID + place, account)
    for place, (name, account) in enumerate(_ACCOUNT_OF.items())
)


def find_user(name: str) -> LabUser:
    """The lab user of that name; KeyError where there is none."""
    return next(user for user in USERS if user.name == name)


def install_users(paths: Paths) -> dict[str, str]:
    """Write passwd and group files and homes; return the variables that make them known."""
    passwd, group = paths.etc / "passwd", paths.etc / "group"
    own_passwd = [f"{u.name}:x:{u.uid}:{u.uid}::{paths.home / u.name}:/bin/sh" for u in USERS]
    own_group = [f"{user.name}:x:{user.uid}:" for user in USERS]
    passwd.write_text(_with_host("/etc/passwd", own_passwd))
    group.write_text(_with_host("/etc/group", own_group))
    for user in USERS:
        home = paths.home / user.name
        home.mkdir(exist_ok=True)
        os.chown(home, user.uid, user.uid)
    return {
        "LD_PRELOAD": NSS_WRAPPER,
        "NSS_WRAPPER_PASSWD": str(passwd),
        "NSS_WRAPPER_GROUP": str(group),
    }


def _with_host(path: str, lines: list[str]) -> str:
    return "\n".join([*Path(path).read_text().splitlines(), *lines, ""])
