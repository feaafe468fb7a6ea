#!/usr/bin/env python3
"""Measures the rows of docs/performance.md, keeps the results in bench/performance.json, and writes the page's tables from them.

    bench/performance.py run [GROUP…] [--for SECONDS] [--rounds N] [--again]
    bench/performance.py            writes the tables from performance.json
    bench/performance.py --check    fails if the page differs from performance.json (scripts/tidy does this)
    bench/performance.py list       prints the groups, and the number of rounds that are kept of each

`run` can be stopped at any moment. The results of a slice are kept when the slice ends, and the next `run` of the same tree continues where
the last one stopped, until every group has its rounds (`--rounds`, 5 by default). With `--for`, no slice is started that will probably not end
within this number of seconds, so that short periods of a quiet machine suffice. If the tree changes, all rounds are measured again: rounds of
two trees are never mixed. `--again` first forgets the rounds of the groups. Standard library only; the scripts of the groups state their needs.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "performance.json"
PAGE = ROOT / "docs" / "performance.md"
ROUNDS = 5
# The parts of the tree on which the figures depend.
MEASURED = ["crates", "bench", "Cargo.toml", "Cargo.lock"]


class Group:
    """Rows that one command measures. `slice_rounds` of them take about `slice_s` seconds on an idle machine with two cores. `counted`: the
    figures are the same in every run, so one round suffices, and the table has a column for each of them."""

    def __init__(self, command, slice_rounds, slice_s, peer=None, bars=None, unit="/s", digits=0, ours=("ours",), least=True, counted=False):
        self.counted = counted
        self.command, self.slice_rounds, self.slice_s = command, slice_rounds, slice_s
        self.peer, self.bars, self.unit, self.digits, self.ours, self.least = peer, bars or {}, unit, digits, ours, least

    def bar(self, case):
        """The bar of the first pattern that fits."""
        return next((bar for pattern, bar in self.bars.items() if re.search(pattern, case)), None)


GROUPS = {
    "engine": Group("bench/engine/run.sh {dir} rounds={rounds} seconds=0.2", 5, 80, "raw", {"random": 0.9, "sequential": 0.95}),
    "fsync": Group("bench/fsync/run.sh 1 {rounds} {dir}", 3, 80, "plain", {"^fsync": 0.85}),
    "pgbench": Group("bench/pgbench/run.sh 6 {rounds} {dir}", 2, 85, "plain", {"": 0.85}),
    "block-file": Group("bench/block-file/run.sh 1 {rounds}", 4, 75, "pread", {"": 0.8}),
    "nbd": Group("bench/nbd/run.sh 1 {rounds}", 3, 75, "nbdkit-file", {"": 1}),
    "iscsi": Group("bench/iscsi/run.sh 2 {rounds}", 3, 90, "tgt", {"": 1}),
    "watched": Group("bench/watched/run.sh 3 {rounds}", 5, 60, "alone", {"": 0.99}, ours=("watched",)),
    "vm-peers": Group("bench/vm-peers/run.sh {rounds} peers", 1, 900, "bcache", {"window": 1}, unit="", ours=("isotherm",)),
    "vm-ceilings": Group("bench/vm-peers/run.sh {rounds} ceilings", 1, 180, "rublk loop", {"": 0.9}, unit="", ours=("isotherm",)),
    "recovery": Group("bench/recovery/run.sh {dir} rounds={rounds}", 5, 60, bars={"recovered": 5}, unit="", digits=2),
    "map": Group("bench/map/run.sh rounds={rounds}", 2, 80, unit=" ns", digits=0, least=False),
    "misses": Group("bench/map/misses.sh", 1, 900, counted=True),
    "full-models": Group("bench/full-models/run.sh {rounds}", 1, 80, bars={"4 KiB reads, SSD alone": 5, "4 KiB.*HDD, linear": 5, "HDD, ": 2},
                         unit=" M/s", digits=2),
    "profile": Group("bench/full-models/profile.sh", 1, 600, counted=True),
    "sweeps": Group("bench/lab/sweep.sh {rounds}", 2, 60, "1 thread", {"": 1.9}, unit=" cells/s", digits=2, ours=("2 threads",)),
    "policies": Group("bench/policies/run.sh {rounds}", 1, 80, bars={"": 300}, unit=" ns", digits=0, least=False),
    "policy-counts": Group("bench/policies/instructions.sh", 1, 200, counted=True),
    "hit-only": Group("bench/hit-only/run.sh {rounds} arc-OLTP.lis.zst", 1, 60, "peer", {"": 1}, unit=" M/s", digits=1),
}


def median(values):
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def tree():
    """An identifier of these parts of the tree, which changes with every change of them, committed or not."""
    git = lambda *words: subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    listed = git("ls-files", "-s", "--", *MEASURED) + git("diff", "HEAD", "--", *MEASURED, ":!bench/performance.json")
    listed = "\n".join(line for line in listed.splitlines() if "bench/performance.json" not in line)
    hashed = subprocess.run(["git", "hash-object", "--stdin"], cwd=ROOT, check=True, input=listed, stdout=subprocess.PIPE, text=True)
    return hashed.stdout.strip()[:12]


def load():
    return float(pathlib.Path("/proc/loadavg").read_text().split()[0])


def machine(folder):
    """The machine in one line."""
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = int(re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) / (1 << 20)
    kind = subprocess.run(["stat", "-f", "-c", "%T", folder], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    cores = len(os.sched_getaffinity(0))
    return f"{cpu[1] if cpu else os.uname().machine}, {cores} cores, {memory:.0f} GiB, Linux {os.uname().release.split('-')[0]}, files on {kind}"


def kept():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def keep(results):
    """Writes a line for each measurement, so that the difference between two runs is short."""
    lines = []
    for name in (n for n in GROUPS if n in results):
        group = dict(results[name])
        rows = ",\n".join("   " + json.dumps(r, ensure_ascii=False) for r in group.pop("rows"))
        about = json.dumps(group, ensure_ascii=False)[1:-1]
        lines.append(f' "{name}": {{{about}, "rows": [\n{rows}\n ]}}')
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def wanted(name, rounds):
    """The number of rounds after which a group is measured to the end."""
    return 1 if GROUPS[name].counted else rounds


def rounds_of(entry):
    return max((r[2] for r in entry["rows"]), default=0)


def measured(path, before):
    """Parses lines "CASE SERVER ROUND VALUE", separated by tabs if there are any, else by spaces."""
    rows = []
    for line in path.read_text().splitlines():
        parts = line.split("\t") if "\t" in line else line.split()
        if len(parts) == 4:
            rows.append([parts[0], parts[1], before + int(parts[2]), float(parts[3])])
    return rows


def run_slice(name, entry, rounds, folder):
    """Measures some more rounds. Returns the rows, or None if the command failed."""
    group = GROUPS[name]
    n = min(group.slice_rounds, wanted(name, rounds) - rounds_of(entry))
    with tempfile.NamedTemporaryFile("w+", suffix=".rows") as rows:
        command = group.command.format(rounds=n, dir=folder).split()
        print(f"== {' '.join(command)}", flush=True)
        before = load()
        done = subprocess.run(["sh", *command], cwd=ROOT, env={**os.environ, "BENCH_KEEP": rows.name, "BENCH_ROUNDS": str(n)})
        if done.returncode != 0:
            return None
        entry["load"] = [*entry.get("load", []), before, load()]
        return measured(pathlib.Path(rows.name), rounds_of(entry))


def run(options):
    results, now, begun, failed = kept(), tree(), time.monotonic(), []
    for name in options.groups or GROUPS:
        entry = results.get(name)
        if options.again or not entry or entry.get("tree") != now:
            entry = {"when": datetime.date.today().isoformat(), "machine": machine(options.dir), "tree": now, "load": [], "rows": []}
        while rounds_of(entry) < wanted(name, options.rounds):
            if options.seconds and time.monotonic() - begun + GROUPS[name].slice_s > options.seconds and time.monotonic() - begun > 1:
                break
            rows = run_slice(name, entry, options.rounds, options.dir)
            if not rows:
                failed.append(name)
                break
            entry["rows"] += rows
            results[name] = entry
            keep(results)
    write(results)
    to_the_end = lambda n: n in results and results[n].get("tree") == now and rounds_of(results[n]) >= wanted(n, options.rounds)
    missing = [n for n in options.groups or GROUPS if not to_the_end(n)]
    print(f"not measured to the end: {', '.join(missing)}" if missing else "all rows measured")
    if failed:
        sys.exit(f"these failed: {', '.join(failed)}")


def number(value, digits):
    return f"{value:,.{digits}f}".replace(",", " ")


def spread(values, digits):
    return f"{min(values):.{digits}f}, {max(values):.{digits}f}" if len(values) > 1 else "–"


def by_server(entry):
    """(case, server) → round → value, in the order of the results."""
    table = {}
    for case, server, number_, value in entry["rows"]:
        table.setdefault((case, server), {})[number_] = value
    return table


def beside_peer(group, entry):
    table = by_server(entry)
    lines = [f"| case | served by | it, {group.peer}{group.unit.replace('/s', ' /s')} | ratio | least, greatest | rounds | bar |", "|---|---|---|---|---|---|---|"]
    for (case, server), rounds in table.items():
        if server == group.peer:
            continue
        peer = table.get((case, group.peer), {})
        ratios = [v / peer[r] for r, v in rounds.items() if peer.get(r)]
        if not ratios:
            continue
        bar = group.bar(case) if server in group.ours else None
        ratio = f"{median(ratios):.2f}"
        ratio = f"**{ratio}**" if bar is not None and median(ratios) < bar else ratio
        both = f"{number(median(rounds.values()), group.digits)}, {number(median(peer.values()), group.digits)}"
        lines.append(f"| {case} | {server} | {both} | {ratio} | {spread(ratios, 2)} | {len(ratios)} | {'' if bar is None else bar} |")
    return lines


def alone(group, entry):
    lines = ["| case | of | median | least, greatest | rounds | bar |", "|---|---|---|---|---|---|"]
    for (case, server), rounds in by_server(entry).items():
        values, bar = list(rounds.values()), group.bar(f"{case}, {server}")
        middle = median(values)
        missed = bar is not None and (middle < bar if group.least else middle > bar)
        shown = number(middle, group.digits) + group.unit
        shown = f"**{shown}**" if missed else shown
        lines.append(f"| {case} | {server} | {shown} | {spread(values, group.digits)} | {len(values)} | {'' if bar is None else bar} |")
    return lines


def counts(entry):
    """A row for each case, a column for each figure."""
    table = by_server(entry)
    cases, columns = (list(dict.fromkeys(words)) for words in zip(*table))
    lines = [f"| case | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for case in cases:
        values = (table.get((case, c), {}).get(1) for c in columns)
        lines.append(f"| {case} | {' | '.join('–' if v is None else f'{v:g}' for v in values)} |")
    return lines


def table(name, entry):
    group = GROUPS[name]
    if group.counted:
        return [f"Counted {entry['when']}; tree `{entry['tree']}`.", "", *counts(entry)]
    loads = entry.get("load") or [0]
    about = f"Measured {entry['when']} on {entry['machine']}; load {min(loads):.1f} to {max(loads):.1f}; tree `{entry['tree']}`."
    few = rounds_of(entry)
    about += "" if few >= ROUNDS else f"\n**{few} of {ROUNDS} rounds.**"
    return [about, "", *(beside_peer if group.peer else alone)(group, entry)]


def page(results, text):
    for name in GROUPS:
        begin, end = f"<!-- {name}: written by bench/performance.py -->", f"<!-- end of {name} -->"
        if begin not in text or end not in text:
            sys.exit(f"{PAGE.relative_to(ROOT)}: the marks of {name} are missing")
        body = table(name, results[name]) if name in results else ["Not measured yet: `bench/performance.py run " + name + "`."]
        head, rest = text.split(begin, 1)
        text = head + "\n".join([begin, "", *body, "", end]) + rest.split(end, 1)[1]
    return text


def write(results):
    PAGE.write_text(page(results, PAGE.read_text()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=["run", "list"])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--for", dest="seconds", type=float, help="start no slice that will probably not end within this number of seconds")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--again", action="store_true", help="first forget the results of these groups")
    parser.add_argument("--dir", default=os.environ.get("TMPDIR", "/var/tmp"), help="on the disk to measure")
    options = parser.parse_args()
    unknown = [g for g in options.groups if g not in GROUPS]
    if unknown:
        parser.error(f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    if options.command == "run":
        run(options)
    elif options.command == "list":
        now = tree()
        for name, group in GROUPS.items():
            entry = kept().get(name, {"rows": []})
            print(f"{name:<12} {rounds_of(entry)} rounds{'' if entry.get('tree') == now else ' of another tree'}; a slice takes about {group.slice_s} s")
    elif options.check:
        text = PAGE.read_text()
        if page(kept(), text) != text:
            sys.exit("docs/performance.md is not what bench/performance.json says; run bench/performance.py")
    else:
        write(kept())


main()
