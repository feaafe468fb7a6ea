#!/usr/bin/env python3
"""`benefit` at a cold start: the first requests of each trace that it was tuned on, each head a workload of its own.

    bench/benefit/heads.py [--set KEY=VALUE]... [--requests N,...] [--depth N] [--inside even|odd]

Needs a release build (ISOTHERM names another program) and the traces in ISOTHERM_TRACES; those that are not there are said to be
skipped. Standard library only. Extents of 16 and 64 KiB, a tenth of what is touched on flash, open loop at the trace's clock (--depth: a
closed loop). Printed: mean latency as a share of the disk's alone, and beside the best of the eight peers of `table.py`.

With --inside the workloads begin within the traces instead: at the even or at the odd twelfths, with 1500, 3000 or 6000 requests. So a rule
that was chosen by the even ones can be tested with the odd ones.
"""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import tempfile

from common import ISOTHERM, PAIRS, TUNE, found, isotherm, mean

OTHERS = ["smq", "opencas-like", "bcache-like", "arc", "s3-fifo", "w-tinylfu", "dss-lru", "hystor"]


def run(job):
    """Trace, requests, extent; shares of the disk's latency of `benefit` and of the best peer; the peer; writes beside bcache-like's."""
    path, requests, extent, clock, own = job
    limit = ["--limit", str(requests)] if requests else []
    fast, slow = PAIRS[0]
    rows = isotherm("compare", str(path), *limit, "--fast-size", "10%", "--extent", extent, *clock, "--fast", fast,
                    "--slow", slow, "--json", "--policies", ",".join([own, *OTHERS]))["rows"]
    disk = next(r["report"] for r in rows if r["name"] == "hdd-only")["latency_mean_s"]
    by = {r["report"]["policy"].split(",")[0]: r["report"] for r in rows if r["kind"] != "baseline"}
    best = min(OTHERS, key=lambda n: by[n]["latency_mean_s"])
    writes = by["benefit"]["fast_write_bytes"] / max(by["bcache-like"]["fast_write_bytes"], 1)
    own, peer = by["benefit"]["latency_mean_s"] / disk, by[best]["latency_mean_s"] / disk
    return path.name.split(".")[0], by["benefit"]["requests"], extent, own, peer, best, writes


def windows(path, which, folder):
    """Writes the windows of a trace as traces of their own, whose times begin at 0."""
    whole = folder / f"{path.name.split('.')[0]}.csv"
    subprocess.run([ISOTHERM, "trace", "convert", str(path), "--out", str(whole), "--to", "csv"], check=True, capture_output=True)
    names, *rows = whole.read_text().splitlines()
    for j in range(2 if which == "even" else 1, 12, 2):
        length = [1500, 3000, 6000][(j - 1) // 2 % 3]
        part = [row.split(",", 1) for row in rows[len(rows) * j // 12:][:length]]
        # The last window may be cut short by the end of the trace, but not by much.
        if len(part) < 0.6 * length:
            continue
        begin = int(part[0][0])
        file = folder / f"{whole.stem} {j}:12.csv"
        file.write_text("\n".join([names, *(f"{int(time) - begin},{rest}" for time, rest in part)]) + "\n")
        yield file


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--set", action="append", default=[], help="a parameter of benefit")
    args.add_argument("--requests", default="1000,3000,10000", help="lengths of heads")
    args.add_argument("--depth", type=int, default=0, help="a closed loop of that depth")
    args.add_argument("--inside", choices=["even", "odd"], help="workloads from within the traces")
    args = args.parse_args()
    clock = ["--depth", str(args.depth)] if args.depth else ["--time", "trace"]
    own = ",".join(["benefit", *args.set])
    folder = tempfile.TemporaryDirectory()
    if args.inside:
        parts = [(file, 0) for path in found(TUNE) for file in windows(path, args.inside, pathlib.Path(folder.name))]
    else:
        parts = [(path, int(n)) for path in found(TUNE) for n in args.requests.split(",")]
    jobs = [(*part, extent, clock, own) for part in parts for extent in ("16K", "64K")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(run, jobs))
    print("| trace | requests | extent | benefit | best peer | ratio | SSD writes / bcache-like |\n|---|--:|---|--:|--:|--:|--:|")
    for trace, requests, extent, share, peer, best, writes in rows:
        print(f"| {trace} | {requests} | {extent} | {share:.3f} | {best} {peer:.3f} | {share / peer:.2f} | {writes:.2f} |")
    ratios = [r[3] / r[4] for r in rows]
    print(f"\n{sum(r <= 1.05 for r in ratios)} of {len(rows)} within 1.05 of the best peer, geometric mean {mean(ratios):.3f}, worst "
          f"{max(ratios):.2f}; {sum(r[3] > 1.02 for r in rows)} over 1.02 of the disk, worst {max(r[3] for r in rows):.3f}; SSD writes "
          f"{mean([r[6] for r in rows]):.2f}")


main()
