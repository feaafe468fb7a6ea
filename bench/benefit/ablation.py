#!/usr/bin/env python3
"""The effect of each mechanism of `benefit`: runs with all of them, and without each one.

    bench/benefit/ablation.py [--tune] [--page]

Needs a release build (ISOTHERM names another program) and the traces in ISOTHERM_TRACES; missing ones are named and skipped.
Standard library only. The traces are those on which `benefit` was not tuned (--tune: those on which it was). Extents have 16 and 64 KiB
at the times of the trace, and 64 KiB in a closed loop of depth 1; flash has a tenth of the size of the data that is touched. --page puts the table into
docs/policies-compared.md.
"""

import argparse
import concurrent.futures
import os

from common import PAIRS, REPORT, TUNE, found, isotherm, mean, put

CLOCKS = [("16K", ["--time", "trace"]), ("64K", ["--time", "trace"]), ("64K", ["--depth", "1"])]
# The parameter, and what happens with it.
OFF = [
    ("without=account", "data that is not used again is fetched as well"),
    ("without=alone", "flash gets writes even if the disk alone would answer sooner"),
    ("guard=0", "both of the above"),
    ("without=value", "cleaning always waits until the disk is idle, even if no copy is clean"),
    ("without=yielding", "the round of a batch begins as soon as any request waits, and as soon as a slot waits for it"),
    ("idle_s=0.001", "the disk counts as idle after 1 ms"),
    ("settled_s=0", "data is cleaned even if it was just written"),
    ("parts=0", "whole extents are always copied"),
    ("without=lacks", "blocks that are missing in a copy are not fetched"),
    ("without=riding", "at most 16 copies at the same time instead of 128"),
    ("without=worth", "every new copy replaces a random clean copy"),
    ("without=duel", "the newest extent always replaces copies, even while a set larger than flash is read again and again"),
    ("without=sooner", "a clean copy is read even while flash is so far behind that the slow device would answer sooner"),
    ("half_life=0", "worth never decreases"),
    ("move_price=0", "the cost of a copy is not counted"),
    ("stream_bypass=0,request_bypass=0", "streams and long requests are copied"),
]


def run(job):
    path, extent, clock, policy = job
    fast, slow = PAIRS[0]
    return isotherm("sim", str(path), "--fast-size", "10%", "--extent", extent, *clock, "--fast", fast, "--slow", slow, "--policy", policy,
                    "--json")


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--tune", action="store_true", help="use the traces on which it was tuned")
    args.add_argument("--page", action="store_true", help="put the table into the page")
    args = args.parse_args()
    paths = list(found(TUNE if args.tune else REPORT))
    cells = [(path, extent, clock) for path in paths for extent, clock in CLOCKS]
    policies = ["benefit"] + [f"benefit,{off}" for off, _ in OFF]
    jobs = [(*cell, policy) for policy in policies for cell in cells]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = list(pool.map(run, jobs))
    n = len(cells)
    whole = reports[:n]
    lines = ["| left out | without it | mean latency | 99th percentile | written to flash | worst cell | best cell |",
             "|---|---|--:|--:|--:|--:|--:|"]
    for i, (off, what) in enumerate(OFF, 1):
        mine = reports[i * n:(i + 1) * n]
        share = [b["latency_mean_s"] / a["latency_mean_s"] for a, b in zip(whole, mine)]
        p99 = mean([b["latency_p99_s"] / max(a["latency_p99_s"], 1e-9) for a, b in zip(whole, mine)])
        wear = mean([b["fast_write_bytes"] / max(a["fast_write_bytes"], 1) for a, b in zip(whole, mine)])

        def cell(j):
            path, extent, clock = cells[j]
            loop = "" if clock[0] == "--time" else ", depth 1"
            return f"{share[j]:.2f} ({path.name.split('.')[0]}, {extent}{loop})"

        worst, best = max(range(n), key=share.__getitem__), min(range(n), key=share.__getitem__)
        lines.append(f"| `{off}` | {what} | {mean(share):.3f} | {p99:.3f} | {wear:.2f} | {cell(worst)} | {cell(best)} |")
    print("\n".join(lines))
    if args.page:
        put("bench/benefit/ablation.py", lines)


main()
