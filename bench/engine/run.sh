#!/bin/sh
# The engine against the raw file through io_uring, on disk (DIR, default the system's scratch directory) and on tmpfs.
#
#   bench/engine/run.sh [DIR] [OPTION=VALUE…]      options: see crates/live/benches/engine.rs
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
dir=${1:-${TMPDIR:-/tmp}}
[ $# -eq 0 ] || shift
cd "$here"
exec cargo bench --quiet -p isotherm-live --bench engine -- "$dir" /dev/shm "$@"
