#!/usr/bin/env python3
"""`benefit` beside other presets and the slow device alone, on the traces that it was tuned on or on those that it was not.

    bench/benefit/table.py [--report] [--quick] [--set KEY=VALUE]...

Needs a release build (ISOTHERM names another program) and the traces in ISOTHERM_TRACES; those that are not there are said to be
skipped. Prints a Markdown table: mean latency as a share of the slow device's alone, SSD writes as a share of bcache-like's, each for
extents of 16 and 64 KiB, a tenth of what is touched on flash, open loop at the trace's clock, full models. Standard library only.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ISOTHERM = os.environ.get("ISOTHERM", str(ROOT / "target/release/isotherm"))
TRACES = pathlib.Path(os.environ.get("ISOTHERM_TRACES", ROOT / "fixtures"))

TUNE = ["linux-mysql.load.zst", "linux-webserver-2.load.zst", "cloudphysics-io.vscsi.zst", "msr-web_0-head65k.csv.zst",
        "dtrs-0-200s.trace.zst", "hplajw-1week.csv.zst", "msr-rsrch_1.csv.zst"]
REPORT = ["websearch-0-40s.spc.zst", "financial1-head10k.spc.zst", "tencent-cbs-sample50k.csv.zst", "linux-sample.blktrace.0.zst",
          "windows-shared-server.load.zst", "msr-wdev_1.csv.zst", "fiu-mail-head7k.blkparse.zst", "systor17-sample1k.csv.zst"]
OTHERS = ["smq", "opencas-like", "bcache-like", "arc", "s3-fifo", "w-tinylfu", "dss-lru", "hystor"]


def compare(path, policies, extent):
    words = ["compare", str(path), "--policies", policies, "--fast-size", "10%", "--extent", extent, "--time", "trace",
             "--fast", "sata-enterprise", "--slow", "exos-18tb", "--json"]
    done = subprocess.run([ISOTHERM, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"isotherm {' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def mean(xs):
    xs = [x for x in xs if x > 0]
    return math.exp(sum(map(math.log, xs)) / len(xs)) if xs else float("nan")


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--report", action="store_true", help="the traces that it was not tuned on")
    args.add_argument("--quick", action="store_true", help="bcache-like only beside it")
    args.add_argument("--set", action="append", default=[], help="a parameter of benefit")
    args = args.parse_args()
    others = ["bcache-like"] if args.quick else OTHERS
    own = ",".join(["benefit", *args.set])
    print(f"| trace | extent | disk ms | benefit | {' | '.join(others)} | SSD writes / bcache-like |")
    print("|---|---|--:|--:|" + "--:|" * (len(others) + 1))
    shares = {name: [] for name in ["benefit", *others, "writes"]}
    for file in REPORT if args.report else TUNE:
        path = TRACES / file
        if not path.exists():
            print(f"| {file} | skipped: not in ISOTHERM_TRACES |")
            continue
        for extent in ("16K", "64K"):
            rows = compare(path, ",".join([own, *others]), extent)["rows"]
            alone = next(r["report"] for r in rows if r["name"] == "hdd-only")
            by = {r["report"]["policy"].split(",")[0]: r["report"] for r in rows if r["kind"] != "baseline"}
            disk = alone["latency_mean_s"]
            share = {name: by[name]["latency_mean_s"] / disk for name in ["benefit", *others] if name in by}
            writes = by["benefit"]["fast_write_bytes"] / max(by["bcache-like"]["fast_write_bytes"], 1)
            for name, x in [*share.items(), ("writes", writes)]:
                shares[name].append(x)
            cells = " | ".join(f"{share[n]:.3f}" if n in share else "–" for n in ["benefit", *others])
            print(f"| {file.split('.')[0]} | {extent} | {1e3 * disk:.2f} | {cells} | {writes:.2f} |", flush=True)
    cells = " | ".join(f"{mean(shares[n]):.3f}" for n in ["benefit", *others])
    print(f"| *geometric mean* | | | {cells} | {mean(shares['writes']):.2f} |")


main()
