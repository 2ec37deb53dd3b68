#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make demo`: the whole cluster where that is possible, else the seeded data alone, and says which.
set -eu
cd "$(dirname "$0")/.."
missing=""
[ "$(id -u)" = 0 ] || missing=" root's rights"
for program in slurmctld slurmd slurmdbd munged mariadbd gcc; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing="$missing $program"
done
if [ -n "$missing" ]; then
    echo "demo: no live cluster here (missing:$missing)."
    echo "demo: an invented year alone; choose at the top right whom to look as: ada, hana or root."
    exec .venv/bin/fairwatt demo "$@"
fi
exec .venv/bin/python -m tests.lab.demo "$@"
