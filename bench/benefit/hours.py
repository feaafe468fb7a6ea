#!/usr/bin/env python3
"""Checks whether `benefit` is slower than the disk alone over any hour, by a run of the same requests on the disk alone.

    bench/benefit/hours.py [--cases N] [--set KEY=VALUE]... [--page]

Needs a release build (ISOTHERM names another program) and the traces in ISOTHERM_TRACES; missing ones are named and skipped.
Standard library only. Requests arrive at the times of the trace, so that an hour has the same requests in both runs. In each window of an
hour, the latencies of the requests that arrive in it are added up; consecutive windows begin at most a 64th of an hour apart. A trace that
is shorter than an hour is one window. The rule: no sum is above 1.02 times that of the disk alone. The cells of the traces are the open
loops of `table.py --grid`. N cases of `adversary.py` (35), with its devices, follow. --page puts the tables into docs/policies-compared.md.
"""

import argparse
import concurrent.futures
import os
import pathlib
import tempfile

import adversary
from common import PAIRS, REPORT, TUNE, found, isotherm, mean, put

HOUR_S = 3600.0
MOST = 1.02
# Extent, share of flash, pair of devices.
CELLS = [("16K", "10%", PAIRS[0]), ("64K", "10%", PAIRS[0]), ("64K", "5%", PAIRS[0]), ("64K", "20%", PAIRS[0]),
         ("64K", "10%", PAIRS[1]), ("64K", "10%", PAIRS[2])]


def bins(report):
    """The length of a bin in seconds, and for each bin the number of requests that arrived in it and the sum of their latencies."""
    s = report["series"]
    return s["bin_s"], s["arrivals"], [n * t for n, t in zip(s["arrivals"], s["arrivals_latency_mean_s"])]


def coarse(step, bin_s, values):
    """The same with bins of `step` seconds, which are longer by a power of two."""
    each = round(step / bin_s)
    return [sum(values[i:i + each]) for i in range(0, len(values), each)]


def windows(with_it, alone):
    """For every hour: (number of requests, sum of latencies as a share of that of the disk alone, additional seconds)."""
    a, b = bins(with_it), bins(alone)
    step = max(a[0], b[0])
    requests = coarse(step, a[0], a[1])
    mine, disk = coarse(step, a[0], a[2]), coarse(step, b[0], b[2])
    length = len(requests)
    disk = (disk + [0.0] * length)[:length]
    # Replies may come after the last arrival.
    last = max((i for i, n in enumerate(requests) if n), default=0) + 1
    wide = max(1, round(HOUR_S / step))
    out = []
    for begin in range(max(1, last - wide + 1)):
        part = slice(begin, begin + wide)
        n, t, d = sum(requests[part]), sum(mine[part]), sum(disk[part])
        if n and d > 0:
            out.append((n, t / d, t - d))
    return out


def run(job):
    """All hours of a cell, and the length of the trace in seconds."""
    path, (extent, share, (fast, slow)), own = job
    # Bins of a 64th of an hour at most, in a trace of up to nine days.
    words = ["sim", str(path), "--extent", extent, "--time", "trace", "--time-bins", "16384", "--json"]
    alone = isotherm(*words, "--tier", slow, "--policy", "linear")
    with_it = isotherm(*words, "--fast-size", share, "--fast", fast, "--slow", slow, "--policy", own)
    return windows(with_it, alone), alone["elapsed_s"]


def line(name, cell, hours, elapsed):
    extent, share, (fast, slow) = cell
    over = [h for h in hours if h[1] > MOST]
    worst = max(hours, key=lambda h: h[1])
    dearest = max(over, key=lambda h: h[2], default=None)
    more = f"{dearest[2]:.2f} of {dearest[2] / (dearest[1] - 1):.2f}" if dearest else "–"
    return (f"| {name} | {extent}, {share}, {fast} + {slow} | {elapsed / HOUR_S:.1f} | {100 * len(over) / len(hours):.1f} % | {worst[1]:.3f} | "
            f"{worst[0]} | {more} |")


def table(what, names, jobs, results):
    """A table of the cells that break the rule, and a sentence about all cells."""
    rows = [(name, job[1], *result) for name, job, result in zip(names, jobs, results)]
    bad = [r for r in rows if any(h[1] > MOST for h in r[2])]
    hours = [h for r in rows for h in r[2]]
    over = [h for h in hours if h[1] > MOST]
    ordered = sorted((h[1] for h in hours), reverse=True)
    lines = [f"{what}: {len(rows) - len(bad)} of {len(rows)} cells have no hour over {MOST} of the disk alone; of all {len(hours)} windows",
             f"{len(over)} are over it ({100 * len(over) / len(hours):.1f} %), the worst is {ordered[0]:.2f}. Geometric mean of all windows: "
             f"{mean(ordered):.2f}."]
    if bad:
        lines += ["", "| trace | cell | hours | windows over 1.02 | worst | requests in it | most seconds more in a window |",
                  "|---|---|--:|--:|--:|--:|--:|"]
        lines += [line(*r) for r in sorted(bad, key=lambda r: -max(h[1] for h in r[2]))]
    return lines


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--cases", type=int, default=35, help="number of cases of adversary.py")
    args.add_argument("--set", action="append", default=[], help="a parameter of benefit")
    args.add_argument("--only", choices=["tune", "report", "cases"], help="only this part of the cells")
    args.add_argument("--page", action="store_true", help="put the tables into the page")
    args = args.parse_args()
    own = ",".join(["benefit", *args.set])
    lines = []
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = [("tune", "The traces that it was tuned on", TUNE), ("report", "The other traces", REPORT)]
        for key, what, files in parts:
            if args.only in (None, key):
                jobs = [(path, cell, own) for path in found(files) for cell in CELLS]
                names = [job[0].name.split(".")[0] for job in jobs]
                lines += [*table(what, names, jobs, pool.map(run, jobs)), ""]
        if args.only in (None, "cases"):
            jobs, names = [], []
            for n in range(args.cases):
                kind, seed, extent = adversary.named(n, 1)
                file = pathlib.Path(scratch) / f"{kind}-{seed}.csv"
                adversary.make(kind, seed, file)
                jobs.append((file, (extent, "10%", PAIRS[0]), own))
                names.append(f"{kind} {seed}")
            lines += table("Generated cases", names, jobs, pool.map(run, jobs))
    print("\n".join(lines))
    if args.page:
        put("bench/benefit/hours.py", lines)


main()
