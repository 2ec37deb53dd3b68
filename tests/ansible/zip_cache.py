# SPDX-License-Identifier: Apache-2.0
"""On the nodes only: keeps what Python compiles from zip archives.

Ansible sends its library with each task as a zip archive, which holds no byte code: compiling it
again and again is nine tenths of a task's processor time.
"""

# pathlib would cost each start of Python more than there is to win:
# ruff: noqa: PTH103, PTH104, PTH123

import marshal
import os
import zipimport
from _imp import source_hash

_CACHE = "/var/cache/lab-zipimport"
_compile = zipimport._compile_source


def _compile_once(path, source):
    place = f"{_CACHE}/{source_hash(2026, source).hex()}"
    try:
        with open(place, "rb") as stream:
            return marshal.load(stream)
    except OSError:
        code = _compile(path, source)
    try:
        os.makedirs(_CACHE, 0o700, exist_ok=True)
        with open(f"{place}.{os.getpid()}", "wb") as stream:
            marshal.dump(code, stream)
        os.rename(f"{place}.{os.getpid()}", place)
    except OSError:
        pass  # not root: no cache
    return code


zipimport._compile_source = _compile_once
