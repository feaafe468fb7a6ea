#!/bin/sh
# Where the engine's own time goes on tmpfs: the samples outside the kernel by part of the program, by perf. Needs perf and a quiet machine.
#
#   bench/engine/profile.sh [OPTION=VALUE…]      options: see crates/live/benches/engine.rs; default: rounds=5 seconds=0.2
#
# The plain loop, which runs in turn with the engine in the same process, and the creation of the files are mostly kernel time.
# PROFILE_PROGRAM names a program that was built before.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here"
program=${PROFILE_PROGRAM:-$(cargo bench --no-run --message-format=json -p isotherm-live --bench engine |
    jq -r 'select(.target.name? == "engine" and .executable and (.target.src_path | contains("/live/"))) | .executable')}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/profile.XXXXXX")
trap 'rm -rf "$scratch"' EXIT INT TERM
[ $# -gt 0 ] || set -- rounds=5 seconds=0.2
perf record --quiet --event cpu-clock --freq 4000 --output "$scratch/data" "$program" /dev/shm "$@"
perf report --input "$scratch/data" --no-children --stdio --call-graph none --sort symbol 2>/dev/null |
    awk '/^ *[0-9.]+% / {
        share = $1 + 0; name = $0; all += share
        if ($2 == "[k]") { kernel += share; next }
        sub(/^.*\[\.\] /, "", name); sub(/ +-.*$/, "", name)
        if (name ~ /engine::durability/) part = "checks for rounds, and rounds"
        else if (name ~ /engine::requests/) part = "requests"
        else if (name ~ /isotherm_core::(policy|collector|proposals)/) part = "policy"
        else if (name ~ /isotherm_core::volume/) part = "map, slots, pins"
        else if (name ~ /isotherm_core/) part = "rest of the engine"
        else if (name ~ /io_uring|isotherm_live::world/) part = "the ring"
        else if (name ~ /isotherm_live/) part = "rest of the live world"
        else part = "generator, libraries"
        user += share; sum[part] += share
    }
    END {
        printf "kernel: %.1f %% of all samples; the rest:\n", kernel * 100 / all
        for (p in sum) printf "%5.1f %%  %s\n", sum[p] * 100 / user, p | "sort -rn"
    }'
