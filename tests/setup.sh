#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The whole set-up of `make demo` and `make test`: says what it installs, quick when run again.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp_dir=build/stamps
mkdir -p "$stamp_dir"

say() { printf 'set-up: %s\n' "$*"; }

wanted_packages() { sed 's/#.*//' tests/debian-packages.txt | awk 'NF {print $1}'; }

missing_packages() {
    local have
    have=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' 2>/dev/null | awk '$2 == "installed" {print $1}')
    comm -23 <(wanted_packages | sort -u) <(sort -u <<<"$have")
}

# Debian starts daemons on installation; ours are started by the lab alone, so say "no" meanwhile.
apt_without_daemons() {
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod +x $policy
        trap "rm -f $policy" EXIT
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >build/apt.log 2>&1 ||
        { tail -n 20 build/apt.log; say "apt-get failed; the whole log is build/apt.log"; exit 1; }
    [ ! -e $policy ] || { trap - EXIT; rm -f $policy; }
}

install_debian() {
    command -v apt-get >/dev/null || { say "no apt-get here: Slurm and Chromium are not installed"; return; }
    local missing
    mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        say "not root: these Debian packages are missing and stay so: ${missing[*]}"
        return
    fi
    say "Debian packages (about 30 s): ${missing[*]}"
    apt_without_daemons "${missing[@]}"
}

find_python() {
    local candidate
    for candidate in python3.14 python3.13 python3.12 python3.11 python3; do
        if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    say "no Python >= 3.11 with venv found; install python3 and python3-venv" >&2
    exit 1
}

install_python() {
    local wanted
    wanted=$(sha256sum pyproject.toml | cut -d ' ' -f 1)
    [ "$(cat "$stamp_dir/python" 2>/dev/null)" != "$wanted" ] || [ ! -x .venv/bin/fairwatt ] || return 0
    say "Python packages into .venv (about 40 s)"
    [ -x .venv/bin/python ] || "$(find_python)" -m venv .venv
    # Twice quiet: errors only; the warnings are about this host's pip settings.
    .venv/bin/pip install -qq --disable-pip-version-check -e '.[test]'
    echo "$wanted" >"$stamp_dir/python"
}

build_fakes() {
    if command -v gcc >/dev/null; then
        make --no-print-directory --silent fakes
    else
        say "no C compiler: the fake NVML library is not built"
    fi
}

install_debian
install_python
build_fakes
say "ready"
