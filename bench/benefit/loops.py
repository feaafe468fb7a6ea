#!/usr/bin/env python3
"""Hits of `benefit` on sets that are larger than flash and are read repeatedly, beside those of the best choice (MIN) and of other policies.

    bench/benefit/loops.py [--page]

Needs a release build (ISOTHERM names another program). Standard library only. 2000 extents of 64 KiB are read eight times, 4 KiB of each,
50 a second, in order or in a fixed random order. In each round but the first, MIN has a hit for each slot but one. --page puts the table
into docs/policies-compared.md.
"""

import argparse
import pathlib
import random
import tempfile

import workloads
from common import isotherm, put

EXTENTS, ROUNDS = 2000, 8
TIMES = [1.1, 1.25, 1.5, 2, 3]
POLICIES = ["benefit", "benefit,without=duel", "w-tinylfu", "lru"]


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--page", action="store_true", help="put the table into the page")
    args = args.parse_args()
    lines = ["| order | set / flash | MIN | " + " | ".join(f"`{p}`" for p in POLICIES) + " | `benefit` / MIN |",
             "|---|--:|--:|" + "--:|" * (len(POLICIES) + 1)]
    with tempfile.TemporaryDirectory() as scratch:
        for in_order in (True, False):
            trace = pathlib.Path(scratch) / f"loop-{in_order}.csv"
            workloads.write(trace, workloads.loop(random.Random(7), EXTENTS, ROUNDS, in_order))
            for times in TIMES:
                words = ["--fast-size", f"{100 / times:.2f}%", "--extent", "64K", "--time", "trace", "--json"]
                hits = [100 * isotherm("sim", str(trace), *words, "--policy", p)["fast_hit_ratio"] for p in POLICIES]
                best = 100 * (ROUNDS - 1) * (int(EXTENTS / times) - 1) / (EXTENTS - 1) / ROUNDS
                cells = " | ".join(f"{h:.1f}" for h in [best, *hits])
                lines.append(f"| {'in order' if in_order else 'at random'} | {times} | {cells} | {hits[0] / best:.2f} |")
    print("\n".join(lines))
    if args.page:
        put("bench/benefit/loops.py", lines)


main()
