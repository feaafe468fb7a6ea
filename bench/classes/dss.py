#!/usr/bin/env python3
"""Differentiated Storage Services 5.4 to 5.6, scaled down, on live volumes: none / LRU / LRU-S.

    sudo bench/classes/dss.py target/release/isotherm [--work file,email] [--policies none,dss-lru,dss-lru-s]
                              [--files 1200] [--transactions 1200] [--extent 4K] [--mib 1600] [--memory 48] [--seeds 1,2,3]
                              [--set sync_batch=128] [--mount noatime] [--keep bench/classes/results.json] [--record {kind}.parquet]

Each volume (volume.py) has an ext3 file system. File sizes are those of Table 8. The load reads two whole files for each file that it
writes. Then find, tar of a third of the directories into the volume, and fsck run, each with an empty page cache. --set gives parameters to
the policies of DSS, and --mount gives options to the file system (`noatime,barrier=0` never flushes, like the paper's cache). The policy `admitted`
is LRU-S that always admits data of unknown class: new data has no class until the file system writes its inode. The policy `guessed` is
LRU-S on a volume on which the source `guess` is on: what is written and not known yet gets a class by the length of its run. `benefit` is
the default policy, `blind` is the same without the measured worth of classes, `benefit-guessed` the same with the source `guess`, and `ruled` the same with a
rule of the administrator: data of small files and unknown data is always copied.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import volume
from volume import run

K = 1024
SIZES = {  # Table 8
    "file": [(1, 17), (2, 16), (4, 16), (8, 7), (16, 7), (32, 9), (64, 7), (128, 5), (256, 5), (512, 4), (1024, 3), (2048, 2), (8192, 1), (32768, 1)],
    "email": [(2, 24), (4, 26), (8, 18), (16, 12), (32, 6), (64, 5), (128, 3), (256, 2), (512, 2), (1024, 1), (10240, 1)],
}
KEYS = ["files_per_s", "find_s", "tar_s", "fsck_s", "hit_ratio", "cleaning_share"]


class Load:
    """Writes or reads whole files, and records the time of each by its size."""

    def __init__(self, pool, kind, seed, files):
        self.pool, self.kind, self.dirs, self.spent = pool, kind, max(1, files // 30), {}
        self.rng = random.Random(seed)
        self.data = random.Random(0).randbytes(1 << 20)

    def name(self, i):
        return f"{self.pool}/d{i % self.dirs}/f{i}"

    def note(self, what, size, begun):
        self.spent.setdefault(f"{what} {size // K}", []).append(time.monotonic() - begun)

    def write(self, i):
        sizes = SIZES[self.kind]
        size = self.rng.choices([s for s, _ in sizes], [w for _, w in sizes])[0] * K
        begun, left = time.monotonic(), size
        with open(self.name(i), "wb", buffering=0) as f:
            while left > 0:
                left -= f.write(self.data[: min(left, 1 << 20 if self.kind == "file" else 4096)])
        self.note("write", size, begun)

    def read(self, i):
        begun, size = time.monotonic(), 0
        with open(self.name(i), "rb", buffering=0) as f:
            while part := f.read(1 << 17 if self.kind == "file" else 4096):
                size += len(part)
        self.note("read", size, begun)

    def work(self, transactions, files):
        for _ in range(transactions):
            if self.rng.random() < 2 / 3:
                self.read(self.rng.randrange(files))
            else:
                self.write(files)
                files += 1


def load(pool, kind, seed, transactions, files):
    """The load itself, which runs in the control group. Without transactions it makes the pool of files. Prints a line of JSON."""
    transactions, files = int(transactions), int(files)
    it = Load(pool, kind, int(seed) + (transactions > 0), files)
    begun = time.monotonic()
    if transactions:
        it.work(transactions, files)
    else:
        for d in range(it.dirs):
            os.makedirs(f"{pool}/d{d}", exist_ok=True)
        for i in range(files):
            it.write(i)
    run("sync", "-f", pool)
    p95 = {k: round(sorted(v)[int(len(v) * 0.95)], 5) for k, v in sorted(it.spent.items(), key=lambda kv: int(kv[0].split()[1]))}
    print(json.dumps({"seconds": time.monotonic() - begun, "p95_s": p95}))


def utilities(v, group, pool, out, kind, opts):
    """find, tar and fsck, each with an empty page cache."""
    some = sorted(os.listdir(pool))[::3]
    commands = {
        "find": ["find", pool, "-name", "nobody-has-this-name"],
        "tar": ["sh", "-c", 'cd "$0" && tar cf ../archive.tar "$@" && sync -f ..', pool, *some],
    }
    def record(what):
        return volume.Recorder(v, opts.record and opts.record.format(kind=f"{kind}-{what}"))

    for name, words in commands.items():
        v.unmount()
        v.mount()
        before = v.counters()
        with record(name):
            begun = time.monotonic()
            group.inside(*words)
            out[f"{name}_s"] = round(time.monotonic() - begun, 3)
        out[f"{name}_hit_ratio"] = volume.measured(before, v.counters())["hit_ratio"]
    v.unmount()
    with record("fsck"):
        begun = time.monotonic()
        checked = subprocess.run(["fsck.ext3", "-f", "-n", v.loop], capture_output=True, text=True)
        out["fsck_s"] = round(time.monotonic() - begun, 3)
    if checked.returncode != 0:
        sys.exit(f"fsck: {checked.stdout}")


def export(v, opts, kind):
    """Stores the classes of all ranges beside a recording, once they are known, for `why.py`."""
    if opts.record:
        run(opts.isotherm, "classes", "export", "v", f"{os.path.abspath(opts.record.format(kind=kind))}.json", cwd=v.place)


def one(policy, kind, opts):
    place = tempfile.mkdtemp(dir=opts.dir, prefix="dss-")
    group = volume.Group("isotherm-dss", opts.memory)
    names = {"none": None, "admitted": "dss-lru-s,class=0+admit=always", "guessed": "dss-lru-s", "blind": "benefit,without=classes",
             "benefit-guessed": "benefit", "ruled": "benefit,class=0-12+admit=always"}
    name = names.get(policy, policy)
    if name and name.startswith("dss") and opts.set:
        name = f"{name},{opts.set}"
    mkfs = ["mkfs.ext3", "-q", "-F", "-I", "128", *(["-J", f"size={opts.journal}"] if opts.journal else [])]
    v = volume.Volume(opts.isotherm, place, name, mib=opts.mib, flash_mib=opts.mib // 10, extent=opts.extent, mkfs=mkfs, mount=opts.mount)
    try:
        if policy.endswith("guessed"):
            run(opts.isotherm, "classes", "set", "v", "guess=on", cwd=place)
        pool = f"{v.fs}/pool"
        os.mkdir(pool)
        me = [sys.executable, os.path.abspath(__file__), "--load", pool, kind, opts.seed]
        with volume.Recorder(v, opts.record and opts.record.format(kind=f"{kind}-pool")):
            group.inside(*me, 0, opts.files)
        # As in the paper, the pool of files is made first, then the transactions run. Unmounting writes the metadata to its final places.
        v.unmount()
        v.mount()
        v.known()
        export(v, opts, f"{kind}-pool")
        before = v.counters()
        with volume.Recorder(v, opts.record and opts.record.format(kind=kind)):
            done = json.loads(group.inside(*me, opts.transactions, opts.files))
        out = {"files_per_s": opts.transactions / done["seconds"], "p95_s": done["p95_s"], **volume.measured(before, v.counters())}
        out["contents"] = v.contents()
        if opts.record:
            v.known()
            export(v, opts, kind)
        utilities(v, group, pool, out, kind, opts)
        show = v.json("classes", "show", "v")
        out |= {k: show[k] for k in ("unclassified_requests", "mixed_requests", "memory_bytes")}
        return out
    finally:
        v.close()
        group.close()
        shutil.rmtree(place, ignore_errors=True)


def together(runs):
    """One result of several runs: their figures, the medians of these, and the sums of what is counted in bytes or requests."""
    out = {"runs": {k: [round(r[k], 4) for r in runs] for k in KEYS}}
    out |= {k: statistics.median(r[k] for r in runs) for k in KEYS}
    for key in ("contents", "bytes_read", "bytes_written", "accesses_by", "hits_by"):
        out[key] = {}
        for r in runs:
            for group, value in r[key].items():
                old = out[key].get(group)
                pair = isinstance(value, list)
                out[key][group] = value if old is None else [a + b for a, b in zip(old, value)] if pair else old + value
    times = sorted({size for r in runs for size in r["p95_s"]}, key=lambda size: int(size.split()[1]))
    out["p95_s"] = {size: statistics.median(r["p95_s"][size] for r in runs if size in r["p95_s"]) for size in times}
    return out | {k: sum(r[k] for r in runs) for k in ("accesses", "hits", "flushes", "unclassified_requests", "mixed_requests")}


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--load":
        return load(*sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("isotherm", type=os.path.abspath)
    p.add_argument("--work", default="file,email")
    p.add_argument("--policies", default="none,dss-lru,dss-lru-s")
    p.add_argument("--files", type=int, default=1200)
    p.add_argument("--transactions", type=int, default=1200)
    p.add_argument("--extent", default="4K")
    p.add_argument("--mib", type=int, default=1600)
    p.add_argument("--memory", type=int, default=48)
    p.add_argument("--seeds", default="1", help="each policy runs once with each of these seeds of the load: 1,2,3")
    p.add_argument("--set", default="", help="parameters of the policies: KEY=VALUE,...")
    p.add_argument("--mount", default="noatime")
    p.add_argument("--journal", type=int, default=0, help="MiB of the file system's journal instead of the usual size")
    p.add_argument("--dir", default="/dev/shm")
    p.add_argument("--keep", help="a file of results; docs/classes-live.md is made from bench/classes/results.json")
    p.add_argument("--record", help="record the making of the pool, the transactions and each utility as traces: a path with {kind}")
    p.add_argument("--label", default="", help="name of this variant in the file of results")
    opts = p.parse_args()
    print(f"{volume.machine()}; load {os.getloadavg()[0]:.1f}; extent {opts.extent}, {opts.mib} MiB disk, {opts.mib // 10} MiB flash, "
          f"{opts.memory} MiB of memory for the load; {opts.set or 'default parameters'}; {opts.mount}")
    policies, seeds = opts.policies.split(","), [int(seed) for seed in opts.seeds.split(",")]
    for kind in opts.work.split(","):
        print(f"\n{kind} server: {opts.files} files, {opts.transactions} transactions")
        print(f"{'policy':<16}{'seed':>5}" + "".join(f"{k:>15}" for k in KEYS))
        runs, loads = {policy: [] for policy in policies}, []
        # The policies take turns, so that a change of the machine's other work meets all of them.
        for opts.seed in seeds:
            for policy in policies:
                loads.append(os.getloadavg()[0])
                r = one(policy, kind, opts)
                print(f"{policy:<16}{opts.seed:>5}" + "".join(f"{r[k]:15.3f}" if k in r else f"{'-':>15}" for k in KEYS), flush=True)
                runs[policy].append(r)
        loads.append(os.getloadavg()[0])
        about = {"machine": volume.machine(), "load": [round(min(loads), 1), round(max(loads), 1)], "extent": opts.extent,
                 "files": opts.files, "transactions": opts.transactions, "mib": opts.mib, "memory_mib": opts.memory, "set": opts.set,
                 "mount": opts.mount, "seeds": seeds, "journal_mib": opts.journal}
        for policy in policies:
            if opts.keep:
                volume.keep(opts.keep, " ".join(filter(None, [kind, policy, opts.label])), together(runs[policy]) | {"about": about})


main()
