#!/bin/sh
# The time to open a volume of ten million mapped extents after a crash, and the cost of a FLUSH on it.
#
#   bench/recovery/run.sh [DIR] [OPTION=VALUE…]    options: see crates/live/benches/recovery.rs
#
# DIR lies on the disk to measure; its sparse files take about 400 MB there.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
dir=${1:-${TMPDIR:-/tmp}}
[ $# -eq 0 ] || shift
cd "$here"
exec cargo bench --quiet -p isotherm-live --bench recovery -- "$dir" "$@"
