#!/usr/bin/env python3
"""`benefit` beside the slow device alone under workloads that are designed against it: scans, data that is used once, sets that are slightly
larger than flash, bursts, writes only, hot sets that move every minute, and random mixtures of these.

    bench/benefit/adversary.py [--cases N] [--seed S] [--keep DIR] [--policy SPEC] [--in-use]
    bench/benefit/adversary.py --page [--cases N]

Needs a release build (ISOTHERM names another program). Each case is a generated trace with its own seed, in an open loop. Flash has a
tenth of the size of the data that the case touches, or the size that the case states. Prints the mean latency as a share of that of the
slow device alone (below 1 is faster), the worst case last, and the number of cases over 1.02. `--keep` keeps the traces and the results
of the disk alone in DIR, so that the next run simulates only `benefit`. With `--in-use` the volume is full before the first request, as one
is that has been in use for a while; without it the volume is new, and an extent whose first request is a write must be recorded. `--page` runs
N cases (140) with each of three seeds, on new and on full volumes, and puts the result into docs/policies-compared.md. Standard library only.
"""

import argparse
import json
import pathlib
import random
import tempfile

from common import isotherm, mean, put

MIB = 1 << 20
PAGE_SEEDS = [1, 7, 8]
KINDS = ["scan", "once", "thrash", "burst", "write", "shift", "mix"]


def places(kind, rng):
    """An endless sequence of (offset, bytes, whether it is a write) of one kind."""
    span = rng.choice([256, 1024, 4096]) * MIB
    size = rng.choice([4096, 4096, 8192, 16384, 65536])
    blocks = span // size
    writes = {"write": 1.0, "scan": 0.0, "once": rng.choice([0.0, 0.5])}.get(kind, rng.choice([0.0, 0.1, 0.3, 0.7]))
    at = 0
    hot = rng.randrange(blocks)
    width = max(1, blocks // rng.choice([9, 20, 100]))
    while True:
        if kind == "scan":
            at = (at + 1) % blocks
            block = at
        elif kind in ("once", "write", "burst"):
            block = rng.randrange(blocks)
        elif kind == "thrash":
            # The same blocks repeatedly, slightly more than a tenth of all.
            at = (at + 1) % max(1, blocks // 9)
            block = at * 7919 % blocks
        else:
            block = (hot + rng.randrange(width)) % blocks if rng.random() < 0.8 else rng.randrange(blocks)
        moved = yield block * size, size, rng.random() < writes
        if moved:
            hot = rng.randrange(blocks)


def make(kind, seed, file):
    """Writes a trace in the MSR format. Returns the number of its requests."""
    rng = random.Random(seed)
    count = rng.choice([3000, 10000, 30000])
    rate = rng.choice([20, 60, 120, 200, 400])
    burst = rng.choice([1, 1, 50, 500]) if kind != "burst" else rng.choice([200, 1000, 3000])
    parts = [places(k, rng) for k in (rng.sample(KINDS[:-1], 2) if kind == "mix" else [kind])]
    for p in parts:
        next(p)
    now, minute, last = 0.0, 0, None
    with open(file, "w", encoding="ascii") as out:
        for i in range(count):
            if i % burst == 0:
                now += burst * rng.expovariate(rate)
            moved = kind == "shift" and int(now / 60) != minute
            minute = int(now / 60)
            offset, size, write = parts[i % len(parts)].send(moved)
            stamp = 128166372000000000 + int((now + (i % burst) * 1e-5) * 1e7)
            last = stamp if last is None else max(last, stamp)
            out.write(f"{last},adv,0,{'Write' if write else 'Read'},{offset},{size},0\n")
    return count


def named(n, seed):
    """The kind, the seed and the extent size of case n."""
    return KINDS[n % len(KINDS)], seed * 1000 + n, ("16K", "64K")[n // len(KINDS) % 2]


def ratio(file, policy, extent, in_use):
    """The mean latency as a share of that of the disk alone, and that of the disk alone."""
    words = [str(file), "--fast-size", "10%", "--extent", extent, "--time", "trace", "--fast", "sata-enterprise",
             "--slow", "exos-18tb", *(["--full"] if in_use else []), "--json"]
    known = file.with_suffix(f".{extent}{'.in-use' if in_use else ''}.json")
    if not known.exists():
        rows = isotherm("compare", *words, "--policies", policy)["rows"]
        disk = next(r["report"] for r in rows if r["name"] == "hdd-only")["latency_mean_s"]
        known.write_text(json.dumps({"disk_s": disk}))
        own = next(r["report"] for r in rows if r["kind"] != "baseline")["latency_mean_s"]
    else:
        disk = json.loads(known.read_text())["disk_s"]
        own = isotherm("sim", *words, "--policy", policy)["latency_mean_s"]
    return own / disk, disk


def search(args, seed, in_use, folder):
    """Rows of (share of the disk alone, kind, seed, extent, requests, mean latency of the disk alone in seconds)."""
    for n in range(args.cases):
        kind, own, extent = named(n, seed)
        file = folder / f"{kind}-{own}.csv"
        count = make(kind, own, file) if not file.exists() else len(file.read_text().splitlines())
        share, alone = ratio(file, args.policy, extent, in_use)
        yield share, kind, own, extent, count, alone
        if not args.keep:
            for made in folder.glob(f"{file.stem}.*"):
                made.unlink()


def page(args, folder):
    """Puts the figures of both kinds of volume, and their worst cases, into the page."""
    both = {used: [row for seed in PAGE_SEEDS for row in search(args, seed, used, folder)] for used in (False, True)}
    lines = ["| volume | cases | over 1.02 | worst | geometric mean |", "|---|--:|--:|--:|--:|"]
    for used, rows in both.items():
        shares = [row[0] for row in rows]
        lines.append(f"| {'full' if used else 'new'} | {len(rows)} | {sum(s > 1.02 for s in shares)} | {max(shares):.3f} | {mean(shares):.3f} |")
    lines += ["", "The cases that are over 1.02 on either volume:", "", "| kind | seed | extent | disk ms | new volume | full volume |",
              "|---|--:|---|--:|--:|--:|"]
    for new, full in sorted(zip(both[False], both[True]), key=lambda pair: -max(pair[0][0], pair[1][0])):
        if max(new[0], full[0]) > 1.02:
            lines.append(f"| {new[1]} | {new[2]} | {new[3]} | {1e3 * new[5]:.2f} | {new[0]:.3f} | {full[0]:.3f} |")
    print("\n".join(lines))
    put("bench/benefit/adversary.py --page", lines)


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--cases", type=int)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--keep")
    args.add_argument("--policy", default="benefit")
    args.add_argument("--in-use", action="store_true")
    args.add_argument("--page", action="store_true")
    args = args.parse_args()
    args.cases = args.cases or (140 if args.page else 35)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(args.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if args.page:
            page(args, folder)
            return
        rows = sorted(search(args, args.seed, args.in_use, folder))
    print("| kind | seed | extent | requests | disk ms | share |\n|---|--:|---|--:|--:|--:|")
    for share, kind, seed, extent, count, alone in rows:
        print(f"| {kind} | {seed} | {extent} | {count} | {1e3 * alone:.2f} | {share:.3f} |")
    print(f"\n{sum(r[0] > 1.02 for r in rows)} of {len(rows)} cases over 1.02; worst {rows[-1][0]:.3f}")


if __name__ == "__main__":
    main()
