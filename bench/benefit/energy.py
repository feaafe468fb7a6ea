#!/usr/bin/env python3
"""Joules of both devices under `benefit,goal=quiet` beside the disk alone with the same standby timer, on traces with idle periods.

    bench/benefit/energy.py [--page]

Needs a release build (ISOTHERM names another program) and the traces in ISOTHERM_TRACES; missing ones are named and skipped.
Standard library only. Requests arrive at the times of the trace, extents have 64 KiB, and flash has a tenth of the size of the data
that is touched. The disk sleeps after 60 s or 600 s without use, and work waits for a sleeping disk for up to an hour
(`sleep_hold_s=3600`, as with `create --goal quiet`). Flash never sleeps, and its idle power counts. The number of starts of the disk is
compared with the number that its data sheet allows in five years; rows above it are named, and the exit code is then 1. A second table
has the rows in which requests wait for wake-ups, with and without a cap of 1 % of the requests (`sleep_wait_share=0.01`). The bound is the least energy of any cache of this size that copies
data when it is accessed (`isotherm sim --energy-bound`, crates/lab/src/energy.rs). A row can be won if the bound leaves at least 2 %
below the disk alone. --page puts the table into docs/policies-compared.md.
"""

import argparse
import concurrent.futures
import os
import sys

from common import PAIRS, REPORT, TUNE, found, isotherm, put

TIMERS = [60, 600]
# Shorter traces have no idle periods of minutes.
LONG_S = 1800.0
# A row counts as one that can be won if the bound is at most this share of the disk alone. This was chosen before the bounds were known.
CAN_BE_WON = 0.98
# The starts that a row may have per hour: the data sheet's limit, spread over five years of continuous use.
HOURS = 5 * 365 * 24
# The share of the requests that may wait for wake-ups in the second table.
CAP = 0.01
START_STOP_LIMITS = {"wd5000aaks": 50_000, "exos-18tb": 600_000, "smr-8tb": 600_000}


def run(job):
    path, (fast, slow), timer, what = job
    words = ["sim", str(path), "--extent", "64K", "--time", "trace", "--json"]
    if what == "alone":
        words += ["--tier", slow, "--policy", "linear", "--standby", str(timer)]
    else:
        goal = "benefit" if what == "fast" else "benefit,goal=quiet"
        words += ["--fast-size", "10%", "--fast", fast, "--slow", slow, "--policy", goal, "--standby", f"0,{timer}"]
        if what != "fast":
            words += ["--set", "sleep_hold_s=3600"]
        if what == "quiet":
            words += ["--energy-bound"]
        if what == "capped":
            words += ["--set", f"sleep_wait_share={CAP}"]
    return isotherm(*words)


def disk(report):
    return list(report["usage"]["members"].values())[-1]


def starts_an_hour(report):
    return (report["spin_downs"] or 0) / (report["elapsed_s"] / 3600)


def capped_table(reports):
    """The rows in which requests wait for wake-ups, without and with the cap."""
    lines = ["| trace | pair | timer s | `quiet`: waits % | capped | of the disk alone: `quiet` | capped | starts an hour: `quiet` | capped "
             "| mean ms: `quiet` | capped | p99 s: `quiet` | capped |",
             "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for (path, pair, timer, what), alone in reports.items():
        if what != "alone" or alone["elapsed_s"] < LONG_S:
            continue
        both = [reports[(path, pair, timer, w)] for w in ("quiet", "capped")]
        if not both[0]["wake_waits"]:
            continue
        cells = [[f(r) for r in both] for f in (
            lambda r: f"{100 * r['wake_waits'] / r['requests']:.2f}",
            lambda r: f"{r['energy_j'] / alone['energy_j']:.3f}",
            lambda r: f"{starts_an_hour(r):.2f}",
            lambda r: f"{1e3 * r['latency_mean_s']:.2f}",
            lambda r: f"{r['latency_p99_s']:.3f}")]
        name = f"{path.name.split('.')[0]} | {pair[0]} + {pair[1]} | {timer}"
        lines.append(f"| {name} | " + " | ".join(c for pair in cells for c in pair) + " |")
    return lines


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--page", action="store_true", help="put the table into the page")
    args = args.parse_args()
    jobs = [(path, pair, timer, "alone") for path in found(TUNE + REPORT) for pair in PAIRS for timer in TIMERS]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = dict(zip(jobs, pool.map(run, jobs)))
        more = [(*job[:3], what) for job in jobs if reports[job]["elapsed_s"] >= LONG_S for what in ("fast", "quiet", "capped")]
        reports.update(zip(more, pool.map(run, more)))
    lines = ["| trace | pair | timer s | disk alone J | bound | `fast` | `quiet` | flash J | starts an hour: alone | `quiet` "
             "| mean ms: alone | `quiet` | p99 s: `quiet` |",
             "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    counts, over = {}, 0
    for job, alone in reports.items():
        path, pair, timer, what = job
        if what != "alone" or alone["elapsed_s"] < LONG_S:
            continue
        fast, quiet = (reports[(path, pair, timer, w)] for w in ("fast", "quiet"))
        flash = list(quiet["usage"]["members"].values())[0]
        bound = quiet["energy_bound"]["energy_j"] / alone["energy_j"]
        group = counts.setdefault(path.name in TUNE, [0] * 5)
        group[0] += 1
        group[1] += quiet["energy_j"] < alone["energy_j"]
        group[2] += bound <= CAN_BE_WON
        group[3] += bound <= CAN_BE_WON and quiet["energy_j"] < alone["energy_j"]
        group[4] += quiet["energy_j"] > fast["energy_j"] * 1.005
        shares = " | ".join(f"{r['energy_j'] / alone['energy_j']:.3f}" for r in (fast, quiet))
        if starts_an_hour(quiet) > START_STOP_LIMITS[pair[1]] / HOURS:
            over += 1
            print(f"{path.name}, {pair[1]}, {timer} s: `quiet` starts the disk more often than five years allow", file=sys.stderr)
        starts = " | ".join(f"{starts_an_hour(r):.2f}" for r in (alone, quiet))
        ms = " | ".join(f"{1e3 * r['latency_mean_s']:.2f}" for r in (alone, quiet))
        lines.append(f"| {path.name.split('.')[0]} | {pair[0]} + {pair[1]} | {timer} | {alone['energy_j']:.0f} | {bound:.3f} | {shares} | "
                     f"{flash['energy_j'] / alone['energy_j']:.3f} | {starts} | {ms} | {quiet['latency_p99_s']:.3f} |")
    for tuned, (rows, below, winnable, won, above) in sorted(counts.items(), reverse=True):
        lines += ["", f"{'Tuning' if tuned else 'Other'} traces, {rows} rows: `quiet` is below the disk alone in {below}.",
                  f"The bound leaves at least 2 % in {winnable} rows, and in {won} of these `quiet` is below.",
                  f"It takes over 0.5 % more than `fast` in {above} rows."]
    lines += ["", f"In {over} rows `quiet` starts the disk more often than its data sheet allows in five years.",
              "", f"With a cap of {100 * CAP:g} % on the requests that wait for wake-ups:", "", *capped_table(reports)]
    print("\n".join(lines))
    if args.page:
        put("bench/benefit/energy.py", lines)
    sys.exit(1 if over else 0)


main()
