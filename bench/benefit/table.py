#!/usr/bin/env python3
"""`benefit` beside other presets and the slow device alone, on the traces on which it was tuned or (--report) on the others.

    bench/benefit/table.py [--report] [--grid [full]] [--quick] [--in-use] [--set KEY=VALUE]... [--keep DIR] [--page]

Needs a build (ISOTHERM names the program) and the traces in ISOTHERM_TRACES; missing ones are named and skipped. Standard
library only. Prints Markdown. Without --grid: the mean latency as a share of that of the slow device alone, and the SSD writes as a share
of those of bcache-like. Extents have 16 and 64 KiB, flash has a tenth of the size of the data that is touched, requests arrive at the times
of the trace (open loop), and the device models are complete.

With --grid: other sizes of flash, other devices and closed loops as well. Each cell differs in one setting from that base (`--grid full`:
all combinations) and is compared with the best of the eight peers in it. The cells that meet each bar are counted.

--in-use: the volume is full before the first request, as one is that has been in use for a while (`sim --full`). Otherwise it is new, and the
first touch of each extent must be recorded.

--keep DIR keeps the results of the peers and of the devices alone, so that the next run simulates only `benefit`. Remove DIR when the
engine, the models or the peers have changed.

--page puts the table without --grid, and the bars with it, into docs/policies-compared.md.
"""

import argparse
import collections
import hashlib
import json
import pathlib

from common import PAIRS, REPORT, TRACES, TUNE, isotherm, mean, put

OTHERS = ["smq", "opencas-like", "bcache-like", "arc", "s3-fifo", "w-tinylfu", "dss-lru", "hystor"]

Cell = collections.namedtuple("Cell", "extent share pair depth")
USUAL = [Cell("16K", "10%", PAIRS[0], 0), Cell("64K", "10%", PAIRS[0], 0)]


def grid(full):
    """All cells; depth 0 is the open loop."""
    extents, shares, depths = ["16K", "64K"], ["5%", "10%", "20%"], [0, 1, 8, 32]
    if full:
        return [Cell(e, s, p, d) for e in extents for s in shares for p in PAIRS for d in depths]
    usual = USUAL[1]
    return (USUAL + [usual._replace(share=s) for s in ("5%", "20%")] + [usual._replace(pair=p) for p in PAIRS[1:]]
            + [usual._replace(depth=d) for d in depths[1:]])


def say(cell):
    loop = f"depth {cell.depth}" if cell.depth else "open"
    return f"{cell.extent}, {cell.share}, {cell.pair[0]} + {cell.pair[1]}, {loop}"


def options(args, path, cell):
    fast, slow = cell.pair
    clock = ["--depth", str(cell.depth)] if cell.depth else ["--time", "trace"]
    return [str(path), "--fast-size", cell.share, "--extent", cell.extent, *clock, "--fast", fast, "--slow", slow,
            *(["--full"] if args.in_use else [])]


def compare(args, path, cell, own, others):
    """The output of `isotherm compare`, and the report of `benefit`."""
    keep = args.keep
    words = ["compare", *options(args, path, cell), "--json", "--policies"]
    if not keep:
        data = isotherm(*words, ",".join([own, *others]))
        return data, next(r["report"] for r in data["rows"] if r["report"]["policy"].startswith("benefit"))
    keep = pathlib.Path(keep)
    name = hashlib.sha256(" ".join([*words, *others]).encode()).hexdigest()[:16]
    file = keep / f"{path.name.split('.')[0]}-{name}.json"
    if not file.exists():
        keep.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(isotherm(*words, ",".join(others))))
    return json.loads(file.read_text()), isotherm("sim", *options(args, path, cell), "--policy", own, "--json")


def results(args, cells, others):
    """(trace, cell, comparison, report of benefit, report of the disk alone, other reports by name) of each cell that can be run."""
    own = ",".join(["benefit", *args.set])
    for file in REPORT if args.report else TUNE:
        path = TRACES / file
        if not path.exists():
            print(f"| {file} | skipped: not in ISOTHERM_TRACES |")
            continue
        for cell in cells:
            data, mine = compare(args, path, cell, own, others)
            alone = next(r["report"] for r in data["rows"] if r["name"] == "hdd-only")
            by = {r["report"]["policy"].split(",")[0]: r for r in data["rows"] if r["kind"] != "baseline"}
            yield file.split(".")[0], cell, data, mine, alone, {n: by[n] for n in others}


def plain(args):
    others = ["bcache-like"] if args.quick else OTHERS
    lines = [f"| trace | extent | disk ms | benefit | {' | '.join(others)} | SSD writes / bcache-like |",
             "|---|---|--:|--:|" + "--:|" * (len(others) + 1)]
    shares = collections.defaultdict(list)
    for trace, cell, _, mine, alone, by in results(args, USUAL, others):
        disk = alone["latency_mean_s"]
        share = {"benefit": mine["latency_mean_s"] / disk}
        share.update((n, r["report"]["latency_mean_s"] / disk) for n, r in by.items())
        writes = mine["fast_write_bytes"] / max(by["bcache-like"]["report"]["fast_write_bytes"], 1)
        for name, x in [*share.items(), ("writes", writes)]:
            shares[name].append(x)
        cells = " | ".join(f"{share[n]:.3f}" for n in ["benefit", *others])
        lines.append(f"| {trace} | {cell.extent} | {1e3 * disk:.2f} | {cells} | {writes:.2f} |")
    cells = " | ".join(f"{mean(shares[n]):.3f}" for n in ["benefit", *others])
    lines.append(f"| *geometric mean* | | | {cells} | {mean(shares['writes']):.2f} |")
    return lines


def bars(args):
    print("| trace | cell | disk ms | benefit | best peer | ratio | p99 ratio | SSD writes / bcache-like |")
    print("|---|---|--:|--:|---|--:|--:|--:|")
    rows, room = [], []
    for trace, cell, data, mine, alone, by in results(args, grid(args.grid == "full"), OTHERS):
        disk = alone["latency_mean_s"]
        best = min(by, key=lambda n: by[n]["report"]["latency_mean_s"])
        ratio = mine["latency_mean_s"] / by[best]["report"]["latency_mean_s"]
        p99 = mine["latency_p99_s"] / max(min(r["report"]["latency_p99_s"] for r in by.values()), 1e-9)
        writes = mine["fast_write_bytes"] / max(by["bcache-like"]["report"]["fast_write_bytes"], 1)
        share, peer = mine["latency_mean_s"] / disk, by[best]["report"]["latency_mean_s"] / disk
        bound = data["bounds"]["caching_cost_s"]
        # Whether the best peer needs at least 1.5 times the offline bound on device time.
        if bound > 0 and min(r["cost_s"] for r in by.values()) >= 1.5 * bound:
            room.append(ratio)
        rows.append((ratio, share, p99, writes))
        print(f"| {trace} | {say(cell)} | {1e3 * disk:.2f} | {share:.3f} | {best} {peer:.3f} | {ratio:.2f} | {p99:.2f} | {writes:.2f} |",
              flush=True)
    n = max(len(rows), 1)

    def count(which):
        return f"{sum(map(which, rows))} of {len(rows)} cells ({100 * sum(map(which, rows)) / n:.0f} %)"

    return [
        "| bar | met |", "|---|---|",
        f"| mean latency at most 1.05 of the best peer in the cell (90 %) | {count(lambda r: r[0] <= 1.05)} |",
        f"| at most 1.25 of it (all) | {count(lambda r: r[0] <= 1.25)}; worst {max((r[0] for r in rows), default=0):.2f} |",
        f"| geometric mean where the offline bound leaves 1.5 (0.7) | {mean(room):.2f} over {len(room)} cells; over all "
        f"{mean([r[0] for r in rows]):.2f} |",
        f"| 99th percentile at most that of the best peer (90 %) | {count(lambda r: r[2] <= 1.0)} |",
        f"| SSD writes / bcache-like, geometric mean (0.5) | {mean([r[3] for r in rows]):.2f} |",
        f"| at most 1.02 of the disk alone (all) | {count(lambda r: r[1] <= 1.02)}; worst {max((r[1] for r in rows), default=0):.3f} |",
    ]


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--report", action="store_true", help="use the traces on which it was not tuned")
    args.add_argument("--quick", action="store_true", help="compare with bcache-like only")
    args.add_argument("--grid", nargs="?", const="star", choices=["star", "full"], help="vary sizes, devices and loops, and count the cells that meet each bar")
    args.add_argument("--in-use", action="store_true", help="the volume is full before the first request")
    args.add_argument("--set", action="append", default=[], help="a parameter of benefit")
    args.add_argument("--keep", help="keep the results that do not depend on benefit in this directory")
    args.add_argument("--page", action="store_true", help="put the table into the page")
    args = args.parse_args()
    lines = bars(args) if args.grid else plain(args)
    print("\n" + "\n".join(lines))
    if args.page:
        kind = (" --report" if args.report else "") + (" --grid" if args.grid else " --quick") + (" --in-use" if args.in_use else "")
        put(f"bench/benefit/table.py{kind}", lines)


main()
