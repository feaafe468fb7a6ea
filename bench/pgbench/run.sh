#!/bin/sh
# PostgreSQL's pgbench on ext4 over the block file, beside ext4 over a plain loop device on the same disk, in turn.
#
#   bench/pgbench/run.sh [SECONDS] [ROUNDS] [DIR]      defaults: 10, 5, the system's scratch directory
#
# The servers are those of bench/loop-device.sh; PGBENCH_SERVERS chooses them (default: `plain ours ours-dev`). All data of a volume lies
# on its fast tier, a file in DIR that is as large as the plain one; the slow tier is a file beside it. All clusters have the same
# settings (Debian's defaults, but no autovacuum, which could run for one server only) and are filled in the same way.
#
# The servers take turns within a round, and the first one changes from round to round. A checkpoint comes before each run. Prints
# transactions per second (median), the median of the ratios within the rounds with the least and the greatest ratio, and the cost
# of a transaction. PGBENCH_SCALE (10), PGBENCH_CLIENTS (8) and PGBENCH_POLICY (greendm) change the load. Needs root; installs PostgreSQL.
set -eu
seconds=${1:-10}
rounds=${2:-5}
dir=${3:-${TMPDIR:-/var/tmp}}
scale=${PGBENCH_SCALE:-10}
clients=${PGBENCH_CLIENTS:-8}
servers=${PGBENCH_SERVERS:-plain ours ours-dev}
here=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" -eq 0 ] || { echo "bench/pgbench/run.sh: loop devices and mounts need root" >&2; exit 1; }
"$here/scripts/install-deps" postgresql postgresql-contrib e2fsprogs util-linux jq
pg=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
. "$here/bench/loop-device.sh"
chmod 755 "$scratch"

as_postgres() { runuser -u postgres -- "$@"; }
cleanup() {
    trap - EXIT INT TERM
    for name in $servers; do
        [ ! -f "$scratch/$name/data/postmaster.pid" ] || as_postgres "$pg/pg_ctl" -D "$scratch/$name/data" -m immediate stop
        ! mountpoint -q "$scratch/$name" || umount "$scratch/$name"
    done >/dev/null 2>&1
    end_devices
}
trap cleanup EXIT INT TERM

# Makes a cluster on the device of a server. All file systems have the size of the plain file. The ports begin with 54321.
port=54321
cluster() { # name
    mkdir "$scratch/$1"
    echo "$port" >"$scratch/$1.port"
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "$(cat "$scratch/$1.loop")" 786432
    mount "$(cat "$scratch/$1.loop")" "$scratch/$1"
    mkdir "$scratch/$1/data"
    chown postgres "$scratch/$1/data"
    as_postgres "$pg/initdb" -A trust -D "$scratch/$1/data" >/dev/null
    cat >>"$scratch/$1/data/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$scratch/$1/data'
port = $port
autovacuum = off
CONF
    as_postgres "$pg/pg_ctl" -w -D "$scratch/$1/data" -l "$scratch/$1/data/log" start >/dev/null
    as_postgres "$pg/pgbench" -q -h "$scratch/$1/data" -p "$port" -i -s "$scale" postgres >/dev/null 2>&1
    port=$((port + 1))
}
for name in $servers; do
    device "$name" 3G 3200M "${PGBENCH_POLICY:-greendm}"
    cluster "$name"
done

# FLUSHes that were requested, flushes of members, rounds, records, moves.
counters() {
    "$isotherm" stats "$scratch/$1" --json |
        jq -r '[.flushes, ([.members[].flushes] | add), .commit.rounds, .commit.journal_records, .promotions + .demotions] | @tsv'
}
measure() { # name, seconds; prints transactions per second
    at="-h $scratch/$1/data -p $(cat "$scratch/$1.port")"
    # shellcheck disable=SC2086  # words
    as_postgres "$pg/psql" -q $at -c checkpoint postgres >/dev/null
    sync -f "$scratch/$1"
    # shellcheck disable=SC2086
    as_postgres "$pg/pgbench" -n -c "$clients" -j 2 -T "$2" $at postgres 2>/dev/null |
        awk '/^number of transactions actually/ { print int($NF) >"'"$scratch"'/transactions" } /^tps/ { print $3 }'
}
for name in $servers; do measure "$name" 3 >/dev/null; done
round=1
while [ "$round" -le "$rounds" ]; do
    order=$servers
    [ $((round % 2)) = 1 ] || order=$(printf '%s\n' $servers | tac)
    for name in $order; do
        [ "$name" = plain ] || counters "$name" >"$scratch/before"
        echo "tpcb-c$clients $name $round $(measure "$name" "$seconds")"
        [ "$name" = plain ] || counters "$name" | paste "$scratch/before" "$scratch/transactions" - | sed "s/^/$name\t/" >>"$scratch/costs"
    done
    round=$((round + 1))
done >"$scratch/results"
[ -z "${BENCH_KEEP:-}" ] || cp "$scratch/results" "$BENCH_KEEP"
awk -v peer=plain -v bar=0.85 -f "$here/bench/table.awk" "$scratch/results"
awk -F'\t' '{ for (i = 0; i < 5; i++) sum[$1, i] += $(8 + i) - $(2 + i); t[$1] += $7 }
    END { for (n in t) if (t[n]) printf "%s: for a thousand transactions %d FLUSHes requested, %d flushes of members, %d rounds, %d records, %d moves\n",
        n, 1000 * sum[n, 0] / t[n], 1000 * sum[n, 1] / t[n], 1000 * sum[n, 2] / t[n], 1000 * sum[n, 3] / t[n], 1000 * sum[n, 4] / t[n] }' "$scratch/costs"
