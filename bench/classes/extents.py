#!/usr/bin/env python3
"""Which size of extents each of the recorded experiments of Differentiated Storage Services wants: `fixtures` in the lab.

    bench/classes/extents.py target/release/isotherm [--extents 4K,16K,64K] [--page]

Each recording is replayed as `isotherm reproduce` does it (its parts one after the other, each request when the last one has ended, an Intel
X25-E beside a WD5000AAKS): under LRU, under LRU-S (`dss-lru` and `dss-lru-s`, 128 entries cleaned together), under `lru` without and
with `metadata_share`, and under `benefit` without and with the measured worth of classes. The lab decides the times, so the load of the
machine does not matter. --page puts the table into docs/classes-live.md.
"""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from page import put

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
# Experiment, what it is, parts before anything is measured, measured parts, bytes of flash (as crates/experiments/src/dss/recorded.rs).
WORK = [
    ("dss-3, dss-fs", "file server", ["dss-file-pool"], ["dss-file"], "110M"),
    ("dss-fs", "find, tar, fsck", ["dss-file-pool", "dss-file"], ["dss-file-find", "dss-file-tar", "dss-file-fsck"], "110M"),
    ("dss-email", "e-mail server", ["dss-email-pool"], ["dss-email"], "110M"),
    ("dss-email", "the same, 10 MiB of flash", ["dss-email-pool"], ["dss-email"], "10M"),
    ("dss-5", "TPC-H", [], ["tpch"], "20M"),
    ("", "pgbench", [], ["pgbench"], "20M"),
]
POLICIES = [("LRU", "dss-lru,sync_batch=128"), ("LRU-S", "dss-lru-s,sync_batch=128"), ("`lru`", "lru"), ("and share", "lru,metadata_share=30"),
            ("`benefit` without classes", "benefit,without=classes"), ("`benefit`", "benefit")]


def run(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def joined(isotherm, parts, out):
    """One trace of several recordings, one after the other. Returns the number of requests of each."""
    begun, counts, writer = 0, [], None
    with open(out, "w", encoding="utf-8") as f:
        for part in parts:
            one = f"{out}.part"
            run(isotherm, "trace", "convert", FIXTURES / f"{part}.parquet", "--to", "csv", "--out", one)
            with open(one, encoding="utf-8") as g:
                rows = list(csv.DictReader(g))
            os.remove(one)
            if writer is None:
                writer = csv.DictWriter(f, rows[0].keys())
                writer.writeheader()
            for r in rows:
                writer.writerow({**r, "time_ns": int(r["time_ns"]) + begun})
            begun += int(rows[-1]["time_ns"])
            counts.append(len(rows))
    return counts


def played(opts, trace, warm_up, policy, flash, extent):
    words = ["sim", trace, "--policy", policy, "--fast", "intel-x25e-32", "--fast-size", flash, "--slow", "wd5000aaks",
             "--extent", extent, "--json"]
    report = json.loads(run(opts.isotherm, *words, *(["--warm-up", warm_up] if warm_up else [])))
    return report[0] if isinstance(report, list) else report


def cells(opts, trace, warm_up, flash):
    """Per size of extents and policy: its report."""
    return {(e, name): played(opts, trace, warm_up, policy, flash, e) for e in opts.extents.split(",") for name, policy in POLICIES}


def table(opts):
    sizes = opts.extents.split(",")
    head = ["experiment", "extent", *(f"{name}, s" for name, _ in POLICIES), "LRU / LRU-S", "hits of LRU-S", "copies of several classes", "LRU-S wants"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for experiment, what, before, measured, flash in WORK:
        with tempfile.TemporaryDirectory() as place:
            trace = os.path.join(place, "t.csv")
            counts = joined(opts.isotherm, before + measured, trace)
            got = cells(opts, trace, sum(counts[: len(before)]), flash)
        best = min(sizes, key=lambda e: got[e, "LRU-S"]["elapsed_s"])
        for e in sizes:
            lru, lru_s = got[e, "LRU"], got[e, "LRU-S"]
            mixed = lru_s.get("mixed_copies")
            share = f"{100 * mixed['share']:.0f} %" if mixed and mixed["share"] is not None else "none"
            row = [f"{what} ({experiment})" if experiment else what, e] if e == sizes[0] else ["", e]
            row += [f"{got[e, name]['elapsed_s']:.2f}" for name, _ in POLICIES]
            row += [f"{lru['elapsed_s'] / lru_s['elapsed_s']:.2f}", f"{100 * lru_s['fast_hit_ratio']:.0f} %", share, "this" if e == best else ""]
            lines.append("| " + " | ".join(row) + " |")
    return lines


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("isotherm", type=os.path.abspath)
    p.add_argument("--extents", default="4K,16K,64K")
    p.add_argument("--page", action="store_true", help="put the table into the page")
    opts = p.parse_args()
    lines = table(opts)
    print("\n".join(lines))
    if opts.page:
        put("extents", lines)


main()
