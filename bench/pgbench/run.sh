#!/bin/sh
# PostgreSQL's pgbench on ext4 over the block file, beside ext4 over a plain loop device on the same disk, in turn.
#
#   bench/pgbench/run.sh [SECONDS] [ROUNDS] [DIR]      defaults: 10, 5, the system's scratch directory
#
# All of our data lies on the fast tier, a file in DIR as big as the plain one; the slow tier is a file beside it. All devices are
# `losetup --direct-io=on`, all files are allocated before, all clusters have the same settings (Debian's defaults, but no
# autovacuum, which would start in one half only) and are filled in the same way. `ours` takes the block file's requests through
# io_uring where the kernel has that (the switch is turned on for the run and put back), `ours-dev` from /dev/fuse, `ours-asked` (not unless named) with `flush_ahead = 0`.
# Within a round they take turns, and who begins changes from round to round; a checkpoint comes before each run. Prints
# transactions a second (median), the median of the ratios within the rounds with the least and the greatest, and what a
# transaction cost. PGBENCH_SCALE (10), PGBENCH_CLIENTS (8) and PGBENCH_SERVERS change the load. Needs root; installs what it needs.
set -eu
seconds=${1:-10}
rounds=${2:-5}
dir=${3:-${TMPDIR:-/var/tmp}}
scale=${PGBENCH_SCALE:-10}
clients=${PGBENCH_CLIENTS:-8}
servers=${PGBENCH_SERVERS:-plain ours ours-dev}
here=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}/release
[ "$(id -u)" -eq 0 ] || { echo "bench/pgbench/run.sh: loop devices and mounts need root" >&2; exit 1; }
"$here/scripts/install-deps" postgresql postgresql-contrib e2fsprogs util-linux jq
[ -n "${BENCH_NO_BUILD:-}" ] || cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p isotherm
pg=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
scratch=$(mktemp -d "$dir/pgbench.XXXXXX")
chmod 755 "$scratch"
. "$here/bench/fuse-ring.sh"

as_postgres() { runuser -u postgres -- "$@"; }
cleanup() {
    trap - EXIT INT TERM
    for name in $servers; do
        [ ! -f "$scratch/$name/data/postmaster.pid" ] || as_postgres "$pg/pg_ctl" -D "$scratch/$name/data" -m immediate stop
        ! mountpoint -q "$scratch/$name" || umount "$scratch/$name"
        [ ! -f "$scratch/$name.loop" ] || losetup -d "$(cat "$scratch/$name.loop")"
        [ ! -f "$scratch/$name.pid" ] || { sleep 0.3; "$target/isotherm" stop "$scratch/$name" || kill "$(cat "$scratch/$name.pid")"; }
    done >/dev/null 2>&1
    wait
    fuse_ring_as_before
    rm -rf "$scratch"
}
trap cleanup EXIT INT TERM

# A block device for NAME in NAME.loop.
device() {
    case $1 in
    plain) file=$scratch/plain.img && fallocate -l 3G "$file" ;;
    ours*)
        "$target/isotherm" create "$scratch/$1" --fast "$scratch/$1.fast:3200M" --slow "$scratch/$1.slow:3200M" \
            --preallocate --policy "${PGBENCH_POLICY:-greendm}" >/dev/null
        case $1 in
        ours-dev) setting fuse_ring false "$scratch/$1.toml" ;;
        ours-asked) setting flush_ahead 0 "$scratch/$1.toml" ;;
        ours-there) setting flush_here_us 0 "$scratch/$1.toml" ;;
        ours-spin*) setting spin_us "${1#ours-spin}" "$scratch/$1.toml" ;;
        esac
        mkdir "$scratch/$1.mnt"
        "$target/isotherm" serve "$scratch/$1" --block-file "$scratch/$1.mnt" >"$scratch/$1.out" 2>&1 &
        echo $! >"$scratch/$1.pid"
        tries=0
        until grep -q ready "$scratch/$1.out"; do
            tries=$((tries + 1))
            [ "$tries" -lt 200 ] || { echo "a server did not start:" >&2; cat "$scratch/$1.out" >&2; exit 1; }
            sleep 0.05
        done
        file=$scratch/$1.mnt/$1
        ;;
    esac
    losetup --direct-io=on --find --show "$file" >"$scratch/$1.loop"
    [ "$(losetup -n -O DIO "$(cat "$scratch/$1.loop")" | tr -d ' ')" = 1 ] || { echo "$file: no direct I/O" >&2; exit 1; }
}
# A cluster on it; the file system has the size of the plain file everywhere. Ports: 54321 and on.
port=54321
cluster() {
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
    device "$name"
    cluster "$name"
done

# FLUSHes asked for, flushes of members, rounds, records, moves.
counters() {
    "$target/isotherm" stats "$scratch/$1" --json |
        jq -r '[.flushes, ([.members[].flushes] | add), .commit.rounds, .commit.journal_records, .promotions + .demotions] | @tsv'
}
measure() { # name, seconds; transactions a second
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
    END { for (n in t) if (t[n]) printf "%s: for a thousand transactions %d FLUSHes asked for, %d flushes of members, %d rounds, %d records, %d moves\n",
        n, 1000 * sum[n, 0] / t[n], 1000 * sum[n, 1] / t[n], 1000 * sum[n, 2] / t[n], 1000 * sum[n, 3] / t[n], 1000 * sum[n, 4] / t[n] }' "$scratch/costs"
