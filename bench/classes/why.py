#!/usr/bin/env python3
"""Looks for the reason that LRU-S gains less on a live volume than in the paper: replays recordings of `dss.py --record` in the lab, with one
change at a time.

    bench/classes/why.py target/release/isotherm 'DIR/{kind}.parquet' [--work file,email] [--fast 110M] [--extents 4K]

Each row replays the making of the pool of files (not measured) and the transactions under LRU and under LRU-S. `known at the write`: each
written block has from the beginning the class that was found later, as in the paper, whose kernel sends the class with the write. The classes
are in the recording's .json files. `given time`: the requests arrive at their live times, not when the last one has ended.
"""

import argparse
import bisect
import csv
import json
import os
import subprocess
import sys
import tempfile

BLOCK = 4096
NAMES = ["unclassified", "superblock", "group-descriptor", "bitmap", "inode", "indirect", "directory", "journal"]
NAMES += [f"file-{size}" for size in ("4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M", "1G")]


def run(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def records(isotherm, file, place):
    out = os.path.join(place, "t.csv")
    run(isotherm, "trace", "convert", file, "--to", "csv", "--out", out)
    with open(out) as f:
        rows = list(csv.DictReader(f))
    os.remove(out)
    for r in rows:
        for key in ("time_ns", "offset", "length", "class"):
            r[key] = int(r[key])
    return rows


class Known:
    """The classes of ranges as `classes export` wrote them."""

    def __init__(self, file):
        with open(file) as f:
            ranges = sorted((r["offset"], r["offset"] + r["bytes"], NAMES.index(r["class"])) for r in json.load(f)["ranges"])
        self.starts, self.ranges = [r[0] for r in ranges], ranges

    def parts(self, offset, end):
        """(from, to, class) of the parts of a range."""
        i = max(0, bisect.bisect_right(self.starts, offset) - 1)
        while offset < end:
            while i < len(self.ranges) and self.ranges[i][1] <= offset:
                i += 1
            if i == len(self.ranges) or self.ranges[i][0] >= end:
                yield offset, end, 0
                return
            a, b, c = self.ranges[i]
            if a > offset:
                yield offset, a, 0
                offset = a
            yield offset, min(b, end), c
            offset = min(b, end)


def told(rows, known):
    """The same requests. Writes without a class get the later classes of their blocks, and are split where these differ."""
    for r in rows:
        if r["op"] != "write" or r["class"] != 0 or not r["length"]:
            yield r
            continue
        for a, b, c in known.parts(r["offset"], r["offset"] + r["length"]):
            yield {**r, "offset": a, "length": b - a, "class": c}


def guessed(rows):
    """The same requests. Writes without a class get the class that the source `guess` gives them (crates/classify/src/guess.rs)."""
    end, run_bytes = None, 0
    for r in rows:
        if r["op"] != "write" or r["class"] != 0 or not r["length"]:
            yield r
            continue
        run_bytes = r["length"] + (run_bytes if r["offset"] == end else 0)
        end = r["offset"] + r["length"]
        yield {**r, "class": next(c for c in range(8, 18) if run_bytes <= BLOCK << 2 * (c - 8)) if run_bytes < 1 << 20 else 0}


def write(parts, out):
    """Concatenates several parts to one trace. Returns the number of requests before the last part."""
    begun, before, last_of = 0, 0, 0
    with open(out, "w") as f:
        w = None
        for rows in parts:
            before, last = last_of, 0
            for r in rows:
                w = w or csv.DictWriter(f, r.keys())
                if last_of == 0:
                    w.writeheader()
                last = max(last, r["time_ns"])
                w.writerow({**r, "time_ns": r["time_ns"] + begun})
                last_of += 1
            begun += last + 10**9
    return before


def played(opts, trace, policy, warm_up, more):
    words = ["sim", trace, "--policy", policy, "--fast", "intel-x25e-32", "--fast-size", opts.fast, "--warm-up", warm_up, "--json"]
    settings = {"--extent": "4K", "--slow": "wd5000aaks", **more}
    r = json.loads(run(opts.isotherm, *words, *[w for kv in settings.items() for w in kv]))
    return r[0] if isinstance(r, list) else r


def row(opts, name, trace, warm_up, more, add="", rows=""):
    """One line of the table; `rows` are class rows of LRU-S."""
    lru, lru_s = (played(opts, trace, f"dss-{p}{add}", warm_up, more) for p in ("lru", f"lru-s{rows}"))
    cells = [name]
    for r in (lru, lru_s):
        cleaned = 2 * r["writebacks"] * r["extent_bytes"]
        cells += [f"{r['elapsed_s']:.1f}", f"{100 * r['fast_hit_ratio']:.1f}", f"{100 * cleaned / (cleaned + r['bytes_read'] + r['bytes_written']):.0f}"]
    cells.append(f"{lru['elapsed_s'] / lru_s['elapsed_s']:.2f}")
    mixed = lru_s.get("mixed_copies")
    cells.append(f"{100 * mixed['share']:.1f} ({100 * mixed['neighbour_bytes'] / max(1, mixed['bytes']):.1f})" if mixed and mixed["share"] is not None else "-")
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("isotherm", type=os.path.abspath)
    p.add_argument("recording", help="the path that was given to dss.py --record")
    p.add_argument("--work", default="file,email")
    p.add_argument("--fast", default="110M")
    p.add_argument("--extents", default="", help="sizes of extents to compare, with what is known at the write: 4K,16K,64K")
    opts = p.parse_args()
    for kind in opts.work.split(","):
        with tempfile.TemporaryDirectory() as place:
            files = [opts.recording.format(kind=k) for k in (f"{kind}-pool", kind)]
            parts = [records(opts.isotherm, f, place) for f in files]
            known = [list(told(rows, Known(f"{file}.json"))) for rows, file in zip(parts, files)]
            guess = os.path.join(place, "guess.csv")
            c = write([list(guessed(rows)) for rows in parts], guess)
            given, better = os.path.join(place, "given.csv"), os.path.join(place, "known.csv")
            a, b = write(parts, given), write(known, better)
            written = [sum(r["length"] for r in rows if r["op"] == "write") for rows in (parts[1], [r for r in parts[1] if r["class"] == 0])]
            print(f"\n{kind}: {len(parts[1])} requests; {100 * written[1] / max(1, written[0]):.0f} % of the bytes written without a class\n")
            print("| | LRU s | hits % | cleaning % | LRU-S s | hits % | cleaning % | LRU / LRU-S | mixed copies (neighbours) % |")
            print("|---|---|---|---|---|---|---|---|---|")
            row(opts, "as recorded", given, a, {})
            row(opts, "as recorded, at the given time", given, a, {"--time": "trace"})
            row(opts, "data of unknown class admitted under pressure", given, a, {}, "", ",class=0+admit=always")
            row(opts, "guessed from the length of the run", guess, c, {})
            row(opts, "known at the write", better, b, {})
            row(opts, "and 128 cleaned together", better, b, {}, ",sync_batch=128")
            row(opts, "and an array of five disks", better, b, {"--slow": "raid1e-5"}, ",sync_batch=128")
            for extent in filter(None, opts.extents.split(",")):
                row(opts, f"128 together, extents of {extent}", better, b, {"--extent": extent}, ",sync_batch=128")


main()
