#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes what a site installs from, in dist/: the wheel, the Ansible collection, and for each Python
# of PYTHONS a folder (and the same as one .tar.gz) with every wheel that fairwatt needs, so that
# hosts without network can be served; SHA256SUMS names them all.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHONS=${FAIRWATT_DIST_PYTHONS:-3.11 3.13}
venv=.venv/bin
out=dist

version=$("$venv/python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
machine=$(uname -m)

say() { printf 'dist: %s\n' "$*"; }

# Built from the tracked files alone: a stray file or an old build/ must not slip into the wheel.
build_wheel() {
    local source
    source=$(mktemp -d)
    trap 'rm -rf "$source"' RETURN
    git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$source" 2>/dev/null || true
    "$venv/pip" wheel --quiet --quiet --disable-pip-version-check --no-deps --wheel-dir "$out" "$source"
}

# What the wheel requires, with the extras that run on a cluster.
requirements() {
    "$venv/python" - <<'END'
import tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = project["optional-dependencies"]
print("\n".join([*project["dependencies"], *extras["gpu"], *extras["dashboard"]]))
END
}

# Wheels only: the hosts have no compiler.
build_wheelhouse() {
    local tag="cp${1/./}"
    local house="$out/wheelhouse-$tag"
    rm -rf "$house"
    mkdir -p "$house"
    requirements >"$house/requirements.txt"
    "$venv/pip" download --quiet --quiet --disable-pip-version-check --only-binary=:all: --dest "$house" \
        --python-version "$1" --implementation cp --abi "$tag" --abi abi3 --abi none \
        --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" \
        --platform "manylinux_2_28_$machine" --platform any \
        --requirement "$house/requirements.txt"
    rm "$house/requirements.txt"
    cp "$out/fairwatt-$version-py3-none-any.whl" "$house/"
    # Sorted, without owners and times: the same wheels give the same archive.
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --directory "$house" . |
        gzip --no-name >"$out/fairwatt-$version-wheelhouse-$tag.tar.gz"
    say "wheelhouse for Python $1: $(find "$house" -name '*.whl' | wc -l) wheels"
}

mkdir -p "$out"
rm -f "$out"/fairwatt-*
build_wheel
say "wheel $version"
"$venv/ansible-galaxy" collection build --force --output-path "$out" ansible >/dev/null
say "collection fairwatt.cluster $version"
for python in $PYTHONS; do build_wheelhouse "$python"; done
(cd "$out" && sha256sum fairwatt-* >SHA256SUMS)
say "checksums in $out/SHA256SUMS"
