#!/bin/sh
# The cost of one request on a map of 10^4 to 10^8 extents, with and without huge pages (crates/live/benches/map.rs).
#
#   bench/map/run.sh [OPTION=VALUE…]      10^8 extents take about 3 GB of memory
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here"
exec cargo bench --quiet -p isotherm-live --bench map -- "$@"
