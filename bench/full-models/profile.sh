#!/bin/sh
# Instructions of an access in the lab with full models, by part of the program (callgrind). The figures are the same at every load.
#
#   bench/full-models/profile.sh [POLICY…]      default: linear greendm hot-dst-recency lru
#
# The workload is that of the four rows with SSD + HDD of bench/full-models/run.sh together: 7 accesses for each request of a row. Each
# policy runs with FEW (default 100 000) and with MANY (150 000) requests per row. The difference, divided by the number of accesses, does
# not contain the creation of the volume. PROFILE_PROGRAM names a program that was built before (crates/lab/benches/sim.rs).
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here"
[ "$(id -u)" -ne 0 ] || scripts/install-deps valgrind jq
program=${PROFILE_PROGRAM:-$(cargo bench --no-run --message-format=json -p isotherm-lab --bench sim |
    jq -r 'select(.target.name? == "sim" and .executable) | .executable')}
few=${FEW:-100000}
many=${MANY:-150000}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/profile.XXXXXX")
trap 'rm -rf "$scratch"' EXIT INT TERM

# The instructions of each part in a run. Code that was inlined counts for the function into which it was inlined.
parts() { # policy, requests
    valgrind --quiet --tool=callgrind --callgrind-out-file="$scratch/out" "$program" "$2" hdd "$1" untimed >/dev/null
    callgrind_annotate --threshold=100 --auto=no "$scratch/out" | awk '
        /^ *[0-9,]+ \([ 0-9.]+%\) / {
            n = $1; gsub(",", "", n); name = $0
            if (name ~ /PROGRAM TOTALS/) { sum["all"] = n; next }
            sub(/^[^%]*%\) */, "", name); sub(/^[^:]*:/, "", name)
            if (name ~ /isotherm_models::hdd/) part = "disk model"
            else if (name ~ /isotherm_models/) part = "flash model"
            else if (name ~ /engine::durability|isotherm_core::store/) part = "rounds, checkpoints"
            else if (name ~ /engine::relocation/) part = "moves, copies"
            else if (name ~ /engine::requests/) part = "requests"
            else if (name ~ /isotherm_core::(policy|collector|proposals)/) part = "policy"
            else if (name ~ /isotherm_core::volume|isotherm_core::bits/) part = "map, slots, pins"
            else if (name ~ /isotherm_core::engine/) part = "rest of the engine"
            else if (name ~ /isotherm_lab|core::run|roaring|sim::/) part = "lab, trace"
            else part = "libraries"
            sum[part] += n
        }
        END { for (p in sum) printf "%s\t%s\n", p, sum[p] }'
}

for policy in ${*:-linear greendm hot-dst-recency lru}; do
    parts "$policy" "$few" >"$scratch/few"
    parts "$policy" "$many" >"$scratch/many"
    awk -F'\t' -v policy="$policy" -v n="$(((many - few) * 7))" -v keep="${BENCH_KEEP:-}" '
        NR == FNR { few[$1] = $2; next }
        { each[$1] = ($2 - few[$1]) / n }
        END {
            count = split("all,requests,rest of the engine,rounds~checkpoints,moves~copies,policy,map~slots~pins,disk model,flash model,lab~trace,libraries",
                parts, ",")
            line = policy ":"
            for (i = 1; i <= count; i++) {
                gsub("~", ", ", parts[i])
                line = line sprintf(" %s %.0f;", parts[i], each[parts[i]])
                if (keep != "") printf "%s\t%s\t1\t%.0f\n", policy, parts[i], each[parts[i]] >> keep
            }
            print line
        }' "$scratch/few" "$scratch/many"
done
