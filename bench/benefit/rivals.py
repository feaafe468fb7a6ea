#!/usr/bin/env python3
"""`benefit` beside the best of the caching presets of each workload, chosen with hindsight, and beside the slow device alone.

    bench/benefit/rivals.py [--half tune|report] [--cells base|all] [--kind real|made] [--set KEY=VALUE]... [--keep DIR] [--jobs N] [--page]

Needs a release build (ISOTHERM names another program) and the traces in ISOTHERM_TRACES. Standard library only. The workloads are all traces
of the folder and those that `workloads.py` generates. Rule of the halves, fixed before any result was seen: in the order of the alphabet
the traces with odd numbers (the first, the third, ...) are for tuning and those with even numbers for the report; of each generated workload
the seeds 1 and 2 likewise. Extents have 64 KiB, flash has a tenth of the size of the data that is touched. *cold*: all requests count; *warm*:
those of the second half. Requests arrive at the times of the trace, where it has times. --cells all adds 5 and 20 % of flash, and closed
loops of depth 1, 4 and 32.

--keep DIR keeps the results of the rivals and of the disk alone, so that the next run simulates only `benefit`. Remove DIR when engine,
models or rivals have changed. --page puts the summary into docs/policies-compared.md.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import pathlib
import random
import tempfile

import workloads
from common import PAIRS, TRACES, isotherm, mean, put

RIVALS = ["arc", "azor", "bcache-like", "cache-interval", "cache-ondemand", "dss-lru", "dss-lru-s", "fifo", "greendm-cache", "hystor", "lfu",
          "lru", "opencas-like", "raf", "s3-fifo", "sieve", "smq", "w-tinylfu"]
# Traces without times of requests: closed loops only.
TIMELESS = ("arc-", "lirs-")

Cell = collections.namedtuple("Cell", "share depth warm")
BASE = [Cell("10%", 0, False), Cell("10%", 0, True)]
ALL = BASE + [Cell("5%", 0, False), Cell("20%", 0, False)] + [Cell("10%", d, False) for d in (1, 4, 32)]


def say(cell):
    loop = f"depth {cell.depth}" if cell.depth else "open"
    return f"{cell.share} {loop} {'warm' if cell.warm else 'cold'}"


def sources(half, kind, folder):
    """(name, path) of the workloads of one half."""
    odd = {"tune": 0, "report": 1}[half]
    if kind in (None, "real"):
        for path in sorted(p for p in TRACES.iterdir() if p.suffix == ".zst")[odd::2]:
            yield path.name.split(".")[0], path
    if kind in (None, "made"):
        for name, make in workloads.KINDS.items():
            path = folder / f"{name}-{odd + 1}.csv"
            if not path.exists():
                workloads.write(path, make(random.Random(odd + 1)))
            yield path.stem, path


class Lab:
    """Runs, some of which are kept."""

    def __init__(self, keep):
        self.keep = pathlib.Path(keep) if keep else None

    def run(self, path, cell, policy, kept):
        fast, slow = PAIRS[0]
        words = ["sim", str(path), "--extent", "64K", *(["--depth", str(cell.depth)] if cell.depth else ["--time", "trace"]), "--json"]
        words += ["--policy", policy or "linear"]
        words += ["--fast-size", cell.share, "--fast", fast, "--slow", slow] if policy else ["--tier", slow]
        if cell.warm:
            words += ["--warm-up", str(self.alone(path, cell._replace(warm=False))["requests"] // 2)]
        if not kept or not self.keep:
            return isotherm(*words)
        self.keep.mkdir(parents=True, exist_ok=True)
        file = self.keep / (hashlib.sha256(" ".join([path.name, *words[2:]]).encode()).hexdigest()[:20] + ".json")
        if not file.exists():
            report = isotherm(*words)
            file.write_text(json.dumps({k: report[k] for k in KEYS}))
        return json.loads(file.read_text())

    def alone(self, path, cell):
        return self.run(path, cell._replace(share="10%"), None, True)


KEYS = ["requests", "latency_mean_s", "latency_p99_s", "fast_write_bytes", "fast_hit_ratio", "writebacks"]


def row(job):
    """The figures of one cell: the disk alone, each rival, `benefit`."""
    lab, name, path, cell, own, rivals = job
    alone = lab.alone(path, cell)
    by = {r: lab.run(path, cell, r, True) for r in rivals}
    mine = lab.run(path, cell, own, False) if own else None
    return name, cell, alone, by, mine


def summary(rows):
    """One line: ratios to the best rival and to the disk."""
    ratio = [mine["latency_mean_s"] / min(r["latency_mean_s"] for r in by.values()) for _, _, _, by, mine in rows]
    disk = [mine["latency_mean_s"] / alone["latency_mean_s"] for _, _, alone, _, mine in rows]
    wear = [mine["fast_write_bytes"] / max(by["bcache-like"]["fast_write_bytes"], 1) for _, _, _, by, mine in rows]
    n = len(rows)
    return (f"{n} | {mean(ratio):.3f} | {sum(r > 1.05 for r in ratio)} | {sum(r > 1.25 for r in ratio)} | {max(ratio):.2f} | "
            f"{mean(disk):.3f} | {sum(d > 1.02 for d in disk)} | {max(disk):.3f} | {mean(wear):.2f} |")


HEAD = ("| workloads | cells | of the best preset | over 1.05 | over 1.25 | worst | of the disk alone | over 1.02 | worst | "
        "SSD writes / bcache-like |")


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--half", choices=["tune", "report"], default="report")
    args.add_argument("--cells", choices=["base", "all"], default="base")
    args.add_argument("--kind", choices=["real", "made"])
    args.add_argument("--only", help="only workloads whose names contain this")
    args.add_argument("--set", action="append", default=[], help="a parameter of benefit")
    args.add_argument("--keep", help="keep the results that do not depend on benefit in this directory")
    args.add_argument("--jobs", type=int, default=1, help="number of simulations at the same time")
    args.add_argument("--page", action="store_true", help="put the summary into the page")
    args = args.parse_args()
    own = ",".join(["benefit", *args.set])
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(args.keep or scratch) / "made"
        folder.mkdir(parents=True, exist_ok=True)
        lab = Lab(args.keep)
        jobs = [(lab, name, path, cell, own, RIVALS) for name, path in sources(args.half, args.kind, folder)
                if not args.only or args.only in name
                for cell in (BASE if args.cells == "base" else ALL) if cell.depth or not name.startswith(TIMELESS)]
        rows = []
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            print("| workload | cell | disk ms | benefit | best preset | ratio | of the disk | hits | SSD writes / bcache-like |\n"
                  "|---|---|--:|--:|---|--:|--:|--:|--:|")
            for name, cell, alone, by, mine in pool.map(row, jobs):
                best = min(by, key=lambda r: by[r]["latency_mean_s"])
                own_s, best_s, disk_s = mine["latency_mean_s"], by[best]["latency_mean_s"], alone["latency_mean_s"]
                wear = mine["fast_write_bytes"] / max(by["bcache-like"]["fast_write_bytes"], 1)
                print(f"| {name} | {say(cell)} | {1e3 * disk_s:.3f} | {1e3 * own_s:.3f} | {best} {1e3 * best_s:.3f} | {own_s / best_s:.2f} | "
                      f"{own_s / disk_s:.3f} | {100 * mine['fast_hit_ratio']:.1f} ({100 * by[best]['fast_hit_ratio']:.1f}) | {wear:.2f} |", flush=True)
                rows.append((name, cell, alone, by, mine))
    made = tuple(workloads.KINDS)
    lines = [HEAD, "|---|" + "--:|" * 9]
    for what, which in (("traces", False), ("generated", True)):
        part = [r for r in rows if r[0].startswith(made) == which]
        for cell in ALL:
            some = [r for r in part if r[1] == cell]
            if some:
                lines.append(f"| {what}, {say(cell)} | {summary(some)}")
        if part:
            lines.append(f"| *{what}, all* | {summary(part)}")
    print("\n" + "\n".join(lines))
    if args.page:
        put(f"bench/benefit/rivals.py --half {args.half}", lines)


if __name__ == "__main__":
    main()
