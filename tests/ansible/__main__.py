# SPDX-License-Identifier: Apache-2.0
"""A booted site to try things on by hand: `python -m tests.ansible campus FOLDER`.

It runs until it is interrupted (or its standard input ends), and says how to use it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from tests.ansible.playbooks import COLLECTION, ansible_env, inventory
from tests.ansible.sites import CAMPUS, SMALL, BootedSite, booted_site

PLANS = {"campus": CAMPUS, "small": SMALL}


def main() -> None:
    """Boot the site, write FOLDER/inventory.json and FOLDER/env.sh, and wait."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", choices=sorted(PLANS))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    with booted_site(PLANS[options.site]) as site:
        _write(site, options.folder.resolve())
        print(_help(site, options.folder), flush=True)
        sys.stdin.read()


def _write(site: BootedSite, folder: Path) -> None:
    link = folder / "ansible_collections" / "fairwatt" / "cluster"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(COLLECTION)
    (folder / "inventory.json").write_text(json.dumps(inventory(site), indent=1))
    exports = [
        f"export {name}={shlex.quote(value)}" for name, value in ansible_env(folder).items()
    ]
    shells = [
        f'{node.name}() {{ {_shell(node.enter([]))} "$@"; }}' for node in site.lab.nodes.values()
    ]
    (folder / "env.sh").write_text("\n".join([*exports, *shells, ""]))


def _shell(argv: list[str]) -> str:
    return shlex.join(argv)


def _help(site: BootedSite, folder: Path) -> str:
    host = site.plan.controller
    return f"""booted: {", ".join(site.lab.nodes)}
  . {folder}/env.sh
  ansible-playbook -i {folder}/inventory.json fairwatt.cluster.site
  {host} sinfo      # each host is a command; `{host} runuser -l alice -c 'sbatch …'`
Ctrl-C (or the end of standard input) ends it."""


if __name__ == "__main__":
    main()
