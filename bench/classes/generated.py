#!/usr/bin/env python3
"""What classes are worth to `benefit`: generated workloads whose requests have classes, in the lab.

    bench/classes/generated.py target/release/isotherm [--extents 4K,64K] [--page]

Each workload is replayed in a closed loop, an Intel X25-E of a tenth of the touched data beside a WD5000AAKS: under `dss-lru-s` (128 entries
cleaned together), under `benefit` without the measured worth of classes, and under `benefit`. The lab decides the times, so the load of the
machine does not matter. --page puts the table into docs/classes-live.md.
"""

import argparse
import json
import math
import os
import subprocess
import sys

from page import put

WORK = [
    ("web server (Loris), Zipf", "web-server-zipf,scale=0.2"),
    ("web server (OODT)", "web-server-oodt,scale=0.1"),
    ("Postmark (OODT)", "postmark,scale=0.2"),
    ("TPC-C (OODT, DSS)", "tpcc,scale=0.006"),
    ("TPC-H (DSS)", "tpch-dss,scale=0.01"),
    ("file server (DSS)", "specsfs,scale=0.01"),
    ("e-mail server (DSS)", "email,scale=0.02"),
    ("two file systems (Loris)", "mixed,scale=0.05"),
]
POLICIES = ["dss-lru-s,sync_batch=128", "benefit,without=classes", "benefit"]


def played(opts, spec, policy, extent):
    words = [opts.isotherm, "sim", f"gen:{spec}", "--policy", policy, "--fast", "intel-x25e-32", "--fast-size", "10%",
             "--slow", "wd5000aaks", "--extent", extent, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    return report[0] if isinstance(report, list) else report


def table(opts):
    lines = ["| workload | extent | LRU-S, s | without classes, s | `benefit`, s | of the time without | hits without, with | written to flash, of that without |",
             "|---|---|---|---|---|---|---|---|"]
    ratios = []
    for what, spec in WORK:
        for i, extent in enumerate(opts.extents.split(",")):
            lru_s, blind, with_classes = (played(opts, spec, policy, extent) for policy in POLICIES)
            ratio = with_classes["elapsed_s"] / blind["elapsed_s"]
            ratios.append(ratio)
            hits = " and ".join(f"{100 * r['fast_hit_ratio']:.0f} %" for r in (blind, with_classes))
            lines.append("| " + " | ".join([
                f"{what}, `gen:{spec}`" if i == 0 else "", extent, *(f"{r['elapsed_s']:.1f}" for r in (lru_s, blind, with_classes)),
                f"{ratio:.2f}", hits, f"{with_classes['fast_write_bytes'] / blind['fast_write_bytes']:.2f}"]) + " |")
            print(lines[-1], file=sys.stderr, flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    lines.append(f"| geometric mean | | | | | {mean:.3f} | | |")
    return lines


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("isotherm", type=os.path.abspath)
    p.add_argument("--extents", default="4K,64K")
    p.add_argument("--page", action="store_true", help="put the table into the page")
    opts = p.parse_args()
    lines = table(opts)
    print("\n".join(lines))
    if opts.page:
        put("generated", lines)


main()
