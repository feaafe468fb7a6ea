#!/usr/bin/env python3
"""Mean latency of presets over three tiers: 2 % NVMe, 10 % SATA flash and a disk, with extents of 64 KiB.

    bench/benefit/tiers.py [--page]

Needs a release build (ISOTHERM names another program) and the traces in ISOTHERM_TRACES; missing ones are named and skipped. Geometric means over
the traces, in milliseconds, of new volumes as `create` makes them (and of volumes whose homes are in order on the disk), and over generated hot
sets that move 1, 4 and 16 times, with two seeds each. `benefit` leaves the tier in the middle empty. --page puts the table into the page.
"""

import argparse
import pathlib
import random
import tempfile

from common import REPORT, TUNE, found, isotherm, mean, put

POLICIES = ["hot-dst-5s", "hot-dst-80s", "oodt", "edt", "hro", "greendm", "benefit"]
TIERS = ["nvme-tlc:2%", "sata-enterprise:10%", "exos-18tb"]
TIMES = ["--time", "trace"]
CLOSED = ["--time", "closed", "--depth", "4"]
NEW = ["--new-volume"]
# Its addresses span more than the disk has.
TOO_LARGE = "tencent-cbs-sample50k.csv.zst"


def moving(path, seed, phases):
    """Requests of 4 KiB, 60 a second, to 8000 extents of unequal heat, which all change it at each phase."""
    rng, now, extents = random.Random(seed), 0.0, 8000
    with open(path, "w", encoding="utf-8") as out:
        out.write("time_ns,device,op,offset,length\n")
        for _ in range(phases):
            places = list(range(extents))
            rng.shuffle(places)
            for _ in range(160_000 // phases):
                now += rng.expovariate(60)
                at = places[min(extents - 1, int(extents * rng.random() ** 5))] * 65536 + rng.randrange(16) * 4096
                out.write(f"{int(now * 1e9)},0,{'W' if rng.random() < 0.25 else 'R'},{at},4096\n")


def latency(trace, policy, how):
    """Of a cache volume there is only one kind."""
    tiers = [word for tier in TIERS for word in ("--tier", tier)]
    how = [word for word in how if word not in NEW or policy != "benefit"]
    return isotherm("sim", str(trace), *tiers, "--extent", "64K", "--policy", policy, "--json", *how)["latency_mean_s"]


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--page", action="store_true", help="put the table into the page")
    args = args.parse_args()
    traces = list(found([t for t in TUNE + REPORT if t != TOO_LARGE]))
    rows = {p: [] for p in POLICIES}
    for how in (TIMES + NEW, CLOSED + NEW, TIMES, CLOSED):
        for p in POLICIES:
            rows[p].append(mean([latency(t, p, how) for t in traces]))
    with tempfile.TemporaryDirectory() as scratch:
        for phases in (1, 4, 16):
            made = [pathlib.Path(scratch) / f"{phases}-{seed}.csv" for seed in (1, 2)]
            for seed, path in enumerate(made, 1):
                moving(path, seed, phases)
            for p in POLICIES:
                rows[p].append(mean([latency(path, p, TIMES + NEW) for path in made]))
    lines = ["| preset | new, at the trace's times | new, depth 4 | in order, at the trace's times | in order, depth 4 | hot set of 1 | of 4 | of 16 phases |",
             "|---|" + "--:|" * 7]
    lines += [f"| `{p}` | " + " | ".join(f"{1e3 * x:.2f}" for x in row) + " |" for p, row in rows.items()]
    print("\n".join(lines))
    if args.page:
        put("bench/benefit/tiers.py", lines)


main()
