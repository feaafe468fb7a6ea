#!/bin/sh
# The cost of monitoring: random reads and writes of a volume without monitoring, beside those of a volume whose metrics are scraped every
# second and which a page of the web view shows (the stream of events, the map every three seconds, the moves every two seconds).
#
#   bench/watched/run.sh [SECONDS] [ROUNDS]
#
# Two volumes of the same shape are on tmpfs, with all data on the fast tier. fio uses them over NBD at depth 8. They take turns within a
# round, and the first one changes from round to round. Prints each round, then the medians of the ratios watched / alone; the bar is
# 0.99. The rate of requests matters to users, but it varies if the machine has other work. The server's processor time per request
# (user and system) hardly varies, so it is printed as well; it does not contain the time of the scraper and of the page.
set -eu
seconds=${1:-3}
rounds=${2:-9}
here=$(cd "$(dirname "$0")/../.." && pwd)
program=${ISOTHERM:-${CARGO_TARGET_DIR:-$here/target}/release/isotherm}
[ -x "$program" ] || cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p isotherm
scratch=$(mktemp -d /dev/shm/watched.XXXXXX)
web=$((20000 + $$ % 20000))

cleanup() {
    trap - EXIT INT TERM
    # shellcheck disable=SC2086  # a list of processes
    kill ${page:-} 2>/dev/null || true
    wait ${page:-} 2>/dev/null || true
    for v in alone watched; do "$program" stop "$scratch/$v" >/dev/null 2>&1 || true; done
    wait
    rm -rf "$scratch"
}
trap cleanup EXIT INT TERM

for v in alone watched; do
    "$program" create "$scratch/$v" --fast "$scratch/$v.f:600M" --slow "$scratch/$v.s:1G" --extent 16K --policy greendm >/dev/null
done
"$program" serve "$scratch/alone" --nbd "unix:$scratch/alone.nbd" >"$scratch/alone.out" 2>&1 &
pid_alone=$!
"$program" serve "$scratch/watched" --nbd "unix:$scratch/watched.nbd" --metrics "unix:$scratch/metrics" --web "127.0.0.1:$web" \
    >"$scratch/watched.out" 2>&1 &
pid_watched=$!
tries=0
until grep -q ready "$scratch/alone.out" && grep -q ready "$scratch/watched.out"; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || { echo "a server did not start:" >&2; cat "$scratch"/*.out >&2; exit 1; }
    sleep 0.05
done

# The requests of a page of the web view.
{
    curl -sN "http://127.0.0.1:$web/api/events?volume=$scratch/watched" >/dev/null &
    stream=$!
    trap 'kill $stream 2>/dev/null; exit 0' TERM
    n=0
    while :; do
        curl -s --unix-socket "$scratch/metrics" http://x/metrics >/dev/null
        [ $((n % 2)) -ne 0 ] || curl -s "http://127.0.0.1:$web/api/moves?volume=$scratch/watched" >/dev/null
        [ $((n % 3)) -ne 0 ] || curl -s "http://127.0.0.1:$web/api/map?volume=$scratch/watched&from=0&to=131072&bins=131072" >/dev/null
        n=$((n + 1))
        sleep 1
    done
} &
page=$!

run() { # volume, direction, more options
    v=$1 direction=$2
    shift 2
    fio --name=t --ioengine=nbd --uri="nbd+unix:///?socket=$scratch/$v.nbd" --iodepth=8 --rw="$direction" --size=500M \
        --norandommap --output-format=terse --terse-version=3 "$@" |
        awk -F';' 'NF > 50 { print ($8 > 0 ? $8 : 0) + ($49 > 0 ? $49 : 0) }'
}
# Prints the processor ticks that a server has used, and the number of all requests that it got.
ticks() { eval "awk '{ print \$14 + \$15 }' /proc/\$pid_$1/stat"; }
requests() { "$program" stats "$scratch/$1" --json | jq '.reads + .writes'; }
for v in alone watched; do run "$v" write --bs=1M >/dev/null; done
echo "machine: $(nproc) processors, $(uname -r); fio randrw 4k, depth 8, ${seconds} s a run"
echo "round alone/s watched/s ratio, processor us a request alone watched ratio"
round=1
while [ "$round" -le "$rounds" ]; do
    order="alone watched"
    [ $((round % 2)) -eq 0 ] || order="watched alone"
    for v in $order; do
        before=$(ticks "$v") had=$(requests "$v")
        n=$(run "$v" randrw --bs=4k --time_based --runtime="$seconds")
        cost=$(echo "$before $(ticks "$v") $had $(requests "$v") $(getconf CLK_TCK)" | awk '{ print 1e6 * ($2 - $1) / $5 / ($4 - $3) }')
        eval "$v=$n cost_$v=$cost"
    done
    # shellcheck disable=SC2154  # set above
    echo "$round $alone $watched $cost_alone $cost_watched" |
        awk '{ printf "%d %.0f %.0f %.4f %.3f %.3f %.4f\n", $1, $2, $3, $3 / $2, $4, $5, $5 / $4 }'
    round=$((round + 1))
done | tee "$scratch/rounds"
[ -z "${BENCH_KEEP:-}" ] || awk '{ print "randrw-qd8 alone", $1, $2; print "randrw-qd8 watched", $1, $3
    print "requests-per-processor-second alone", $1, 1e6 / $5; print "requests-per-processor-second watched", $1, 1e6 / $6 }' "$scratch/rounds" >"$BENCH_KEEP"
awk '{ print $7 }' "$scratch/rounds" | sort -n | awk '{ r[NR] = $1 } END { printf "processor time a request: median ratio %.4f (lowest %.4f, highest %.4f)\n", r[int((NR + 1) / 2)], r[1], r[NR] }'
awk '{ print $4 }' "$scratch/rounds" | sort -n | awk '{ r[NR] = $1 } END { printf "requests: median ratio %.4f (lowest %.4f, highest %.4f)\n", r[int((NR + 1) / 2)], r[1], r[NR] }'
