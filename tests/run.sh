#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs all tests in two lanes at once, a pytest of its own per stage: the live cluster beside the
# rest. A stage's output is shown when it ends, with its time; one failure fails the whole.
# Not xdist: it splits a module's cluster between workers (its groups do not work with pytest 9.2).
set -u
cd "$(dirname "$0")/.."
logs=build/test-logs
rm -rf "$logs"
mkdir -p "$logs"

stage() { # NAME PATH...
    local name=$1 began=$SECONDS status=0
    shift
    FAIRWATT_STRICT_SKIPS=1 .venv/bin/python -m pytest -q "$@" >"$logs/$name" 2>&1 </dev/null || status=$?
    { flock 9; echo "== $name: $((SECONDS - began)) s, status $status"; cat "$logs/$name"; } 9>"$logs/.lock"
    return $status
}

lane() { # each argument: "NAME PATH..."
    local failed=0 words
    for words in "$@"; do
        # shellcheck disable=SC2086 # the words are a stage's name and paths
        stage $words || failed=1
    done
    return $failed
}

lane "lab tests/lab" "packaging tests/packaging" &
first=$!
lane "unit tests/unit" "docs tests/docs" "browser tests/browser" "ansible tests/ansible" &
second=$!
failed=0
wait $first || failed=1
wait $second || failed=1
exit $failed
