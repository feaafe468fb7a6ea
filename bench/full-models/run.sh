#!/bin/sh
# Extent accesses per second of the lab with full models, by the CPU time of its one thread (crates/lab/benches/sim.rs).
#
#   bench/full-models/run.sh [ROUNDS] [REQUESTS]      defaults: 1, 1000000
set -eu
rounds=${1:-1}
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here"
work=$(mktemp "${TMPDIR:-/tmp}/full-models.XXXXXX")
trap 'rm -f "$work"' EXIT
round=1
while [ "$round" -le "$rounds" ]; do
    cargo bench --quiet -p isotherm-lab --bench sim -- "${2:-1000000}" | tee "$work"
    # The first 34 columns are the workload; 18 of the policy, 3 of the depth and 9 of the rate follow.
    [ -z "${BENCH_KEEP:-}" ] || awk -v round="$round" 'NR > 1 {
        work = substr($0, 1, 34); policy = substr($0, 35, 18); sub(/ +$/, "", work); sub(/ +$/, "", policy)
        printf "%s\t%s, QD %d\t%d\t%s\n", work, policy, substr($0, 53, 3), round, substr($0, 56, 9) + 0
    }' "$work" >>"$BENCH_KEEP"
    round=$((round + 1))
done
