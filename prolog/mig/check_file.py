# SPDX-License-Identifier: Apache-2.0
"""`python -m fairwatt.prolog.mig.check_file FILE` reads a file of MIG layouts before it is used.

Exit status 0, or 1 with every fault on its line.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import FairwattError
from fairwatt.prolog.mig.layout_file import load_layouts


def _main(argv: list[str]) -> None:
    try:
        load_layouts(Path(argv[0]), load_catalogue(argv[1] if len(argv) > 1 else None))
    except FairwattError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main(sys.argv[1:])
