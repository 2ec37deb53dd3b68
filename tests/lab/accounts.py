# SPDX-License-Identifier: Apache-2.0
"""Accounts, shares, users and coordinators, given to slurmdbd as one sacctmgr file."""

from __future__ import annotations

from tests.lab.users import USERS

__all__ = ["ACCOUNTS", "COORDINATORS", "sacctmgr_file"]

# account: (parent, shares among its siblings, description)
ACCOUNTS: dict[str, tuple[str, int, str]] = {
    "physics": ("root", 50, "Department of Physics"),
    "chemistry": ("root", 30, "Department of Chemistry"),
    "medicine": ("root", 20, "Faculty of Medicine"),
    "qcd": ("physics", 60, "Lattice QCD group"),
    "optics": ("physics", 40, "Optics group"),
}
COORDINATORS = {"hana": "physics"}


def sacctmgr_file(cluster: str) -> str:
    """The text for `sacctmgr load`."""
    lines = [f"Cluster - '{cluster}'", "Parent - 'root'"]
    lines.append("User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1")
    for parent in dict.fromkeys(entry[0] for entry in ACCOUNTS.values()):
        lines += [] if parent == "root" else [f"Parent - '{parent}'"]
        lines += [
            f"Account - '{name}':Description='{text}':Organization='campus':Fairshare={shares}"
            for name, (above, shares, text) in ACCOUNTS.items()
            if above == parent
        ]
    for account in ACCOUNTS:
        members = [user for user in USERS if user.account == account]
        lines += [f"Parent - '{account}'"] if members else []
        lines += [_user_line(user.name, account) for user in members]
    return "\n".join([*lines, ""])


def _user_line(name: str, account: str) -> str:
    line = f"User - '{name}':DefaultAccount='{account}':Fairshare=1"
    return f"{line}:Coordinator='{COORDINATORS[name]}'" if name in COORDINATORS else line
