#!/usr/bin/env python3
"""A line of digests of the decisions and their costs, for each preset on each trace.

    bench/digests/run.py --isotherm BEFORE --out before.tsv
    bench/digests/run.py --isotherm AFTER --out after.tsv --against before.tsv

There are three runs for each trace of the folder ISOTHERM_TRACES (default: fixtures) and each preset that `policies` lists: hits only (`hit`),
with full models in the closed loop (`closed`), and at the times of the trace (`clock`). A digest covers every figure of the run's JSON except
those of the host. So if two trees have equal digests, their decisions and their figures are equal. A run that is refused gets the digest of
its message. With --against, different lines are printed, and the exit code is 1 if there are any. Standard library only.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Figures that depend on the host and the date, not on the decisions.
HOST = {"wall_s", "reader_s", "sim_rate_rps", "sim_rate_accesses_per_s"}
MODES = {
    "hit": ["--hit-only"],
    "closed": ["--limit", "20000"],
    "clock": ["--limit", "20000", "--time", "trace"],
}


def without_host(value):
    if isinstance(value, dict):
        return {k: without_host(v) for k, v in sorted(value.items()) if k not in HOST}
    if isinstance(value, list):
        return [without_host(v) for v in value]
    return value


def one(isotherm, trace, preset, mode):
    words = [isotherm, "sim", str(trace), "--policy", preset, "--fast-size", "10%", "--extent", "64K", "--json", *MODES[mode]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        text = json.dumps(without_host(json.loads(done.stdout)), sort_keys=True)
    else:
        text = done.stderr
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{trace.name}\t{preset}\t{mode}", f"{done.returncode}\t{digest}"


def presets(isotherm):
    listed = subprocess.run([isotherm, "policies", "--json"], capture_output=True, text=True, check=True)
    rows = json.loads(listed.stdout)
    rows = rows["policies"] if isinstance(rows, dict) else rows
    return [row["name"] for row in rows]


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--isotherm", default=str(ROOT / "target/release/isotherm"))
    args.add_argument("--out", required=True, type=pathlib.Path)
    args.add_argument("--against", type=pathlib.Path)
    args.add_argument("--modes", default="hit,closed,clock", help="which runs, separated by commas")
    args.add_argument("--presets", help="only these, separated by commas")
    args.add_argument("--jobs", type=int, default=os.cpu_count())
    got = args.parse_args()

    folder = pathlib.Path(os.environ.get("ISOTHERM_TRACES", ROOT / "fixtures"))
    traces = sorted(p for p in folder.iterdir() if p.suffix == ".zst")
    names = got.presets.split(",") if got.presets else presets(got.isotherm)
    runs = [(got.isotherm, t, p, m) for t in traces for p in names for m in got.modes.split(",")]
    with concurrent.futures.ThreadPoolExecutor(got.jobs) as pool:
        lines = dict(pool.map(lambda run: one(*run), runs))
    got.out.write_text("".join(f"{k}\t{v}\n" for k, v in sorted(lines.items())))
    print(f"{len(lines)} runs: {got.out}")
    if got.against is None:
        return
    before = dict(line.rsplit("\t", 2)[0:1] + ["\t".join(line.rsplit("\t", 2)[1:])] for line in got.against.read_text().splitlines())
    shared = sorted(k for k in lines if k in before)
    moved = [k for k in shared if lines[k] != before[k]]
    for k in moved:
        print(f"moved: {k}: {before[k]} -> {lines[k]}".replace("\t", " "))
    print(f"{len(shared) - len(moved)} of {len(shared)} equal; {len(lines) - len(shared)} have no earlier line")
    sys.exit(1 if moved else 0)


if __name__ == "__main__":
    main()
