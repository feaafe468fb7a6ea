#!/usr/bin/env python3
"""Loris V-B and V-C on real files, scaled to minutes: policies of whole files over a fast directory and a slow one on a paced disk. Needs root.

The slow tier is ext4 on a volume of one device, which is paced by the model of the paper's disk WD5000AAKS. The fast tier is ext4 on a loop
device in memory. A control group limits the memory of mount and clients together, including the page cache, because the paper's files are
larger than its memory. Each run begins with its files on the slow tier (for cold-DST they are written through the mount, so they are on the
fast tier while it has room).

Loads: `web` reads whole files of 32 KB at random and appends to a log (10:1); `zipf` is the same with Zipf's distribution, and other files are
popular in the second half; `file` creates, writes, reads, appends 16 KB, deletes and stats; `mixed` is web and file in two directories;
`mail` is the program postmark.

Usage: loris.py [--isotherm PROGRAM] [--seconds N] [--shares 25,50,75] [--loads …] [--policies …] [--seeds 1,2,…] [--results FILE] [--lab DIR]
Prints rates (operations a second; mail: transactions a second) as a table, means over the seeds, and the load of the machine meanwhile.
With --lab, the operations of the clients over the disk alone are recorded in DIR (`isotherm files record`) and replayed in the lab, and the
verdicts of both sides are printed beside each other: see lab.py.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time
import traceback

import lab

HERE = pathlib.Path(__file__).resolve().parent
NAME = "isotherm-loris"
FILES = 2400
BYTES = 32 << 10
CLIENTS = 8
MEMORY = 112 << 20
GROUP = pathlib.Path("/sys/fs/cgroup/memory/isotherm-loris")
# Name, options of `mount`, whether the files begin on the fast tier. {period}: a quarter of the run, so that interval policies plan several times.
POLICIES = {
    "hdd": ("--no-moves --quota 0=1M", False),
    "hot": ("--policy hot,period={period}", False),
    "hro": ("--policy hro,period={period}", False),
    "hot-dst-5s": ("--policy hot-dst-5s", False),
    "hot-dst-dynamic": ("--policy hot-dst-dynamic", False),
    "cold-dst-plain": ("--policy cold-dst-plain", True),
    "cold-dst-dynamic": ("--policy cold-dst-dynamic", True),
    "cache-interval": ("--copies --policy cache-interval", False),
    "cache-ondemand": ("--copies --policy cache-ondemand", False),
    "benefit": ("--copies --policy benefit", False),
    "type-aware": ("--copies --policy hot-dst-dynamic", False),
}


def run(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout.strip()


def wait_ready(server):
    if server.stdout.readline() != "ready\n":
        raise SystemExit("the server did not start")


class Disk:
    """An ext4 on a paced volume. It is not emptied; each run has its own directory."""

    def __init__(self, program, top):
        self.top, self.program = top, program
        run(program, "create", NAME, "--slow", "disk:12G", "--paced", "slow=wd5000aaks", cwd=top)
        self.server = subprocess.Popen([program, "serve", NAME, "--loop"], cwd=top, stdout=subprocess.PIPE, text=True)
        wait_ready(self.server)
        self.device = device = os.path.realpath("/dev/isotherm/" + NAME)
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,nodiscard", device)
        self.path = top / "slow"
        self.path.mkdir()
        run("mount", "-o", "noatime", device, str(self.path))
        # Not a directory in memory: its files would count as memory of the control group.
        run("truncate", "-s", "2G", str(top / "flash"))
        run("mkfs.ext4", "-q", "-F", str(top / "flash"))
        (top / "fast").mkdir()
        run("mount", "-o", "loop,noatime", str(top / "flash"), str(top / "fast"))

    def forget(self):
        """Removes the tier's files from memory."""
        run("umount", str(self.path))
        run("mount", "-o", "noatime", self.device, str(self.path))

    def end(self):
        run("umount", str(self.top / "fast"))
        run("umount", str(self.path))
        run(self.program, "stop", NAME, cwd=self.top)
        self.server.wait()


def write(path, data):
    with open(path, "wb", buffering=0) as f:
        f.write(data)


def read(path):
    with open(path, "rb", buffering=0) as f:
        while f.read(1 << 20):
            pass


class Web:
    def __init__(self, seed, zipf):
        self.size = random.Random(seed)
        self.names = ["w%d/f%d" % (i % 60, i) for i in range(FILES)]
        self.zipf = [1 / (i + 1) for i in range(FILES)] if zipf else None
        self.orders = [random.Random(seed + half).sample(range(FILES), FILES) for half in (1, 2)]

    def fill(self, top):
        for name in self.names:
            (top / name).parent.mkdir(exist_ok=True)
            write(top / name, os.urandom(int(self.size.gammavariate(1.5, BYTES / 1.5)) + 1))

    def step(self, top, rng, half, _):
        for _ in range(10):
            at = rng.choices(range(FILES), self.zipf)[0] if self.zipf else rng.randrange(FILES)
            read(top / self.names[self.orders[half if self.zipf else 0][at]])
        with open(top / "log", "ab", buffering=0) as f:
            f.write(bytes(16 << 10))
        return 11


class File:
    def __init__(self, seed):
        self.rng, self.count = random.Random(seed), FILES // 3

    def fill(self, top):
        for i in range(self.count):
            (top / ("d%d" % (i % 20))).mkdir(exist_ok=True)
            write(top / ("d%d/f%d" % (i % 20, i)), os.urandom(int(self.rng.gammavariate(1.5, 96 << 10) / 1.5) + 1))

    def step(self, top, rng, _half, client):
        any_of = lambda: top / ("d%d/f%d" % ((i := rng.randrange(self.count)) % 20, i))
        new = top / ("d%d/new-%d-%d" % (rng.randrange(20), client, rng.randrange(40)))
        write(new, bytes(64 << 10))
        read(any_of())
        with open(any_of(), "ab", buffering=0) as f:
            f.write(bytes(16 << 10))
        os.stat(any_of())
        os.unlink(new)
        return 5


class Mixed:
    def __init__(self, seed):
        self.parts = [("web", Web(seed, False)), ("file", File(seed))]

    def fill(self, top):
        for name, part in self.parts:
            (top / name).mkdir()
            part.fill(top / name)

    def step(self, top, rng, half, client):
        name, part = self.parts[client % 2]
        return part.step(top / name, rng, half, client)


LOADS = {"web": lambda s: Web(s, False), "zipf": lambda s: Web(s, True), "file": File, "mixed": Mixed}


def clients(load, top, seed, seconds):
    done, start = [0] * CLIENTS, time.monotonic()

    def one(n):
        rng = random.Random(seed * 1000 + n)
        while (passed := time.monotonic() - start) < seconds:
            done[n] += load.step(top, rng, int(passed > seconds / 2), n)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(CLIENTS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sum(done) / (time.monotonic() - start)


def postmark(top, seed, seconds):
    script = "set location %s\nset size 4096 28672\nset number %d\nset transactions %d\nset seed %d\nset read 4096\nset write 4096\nset subdirectories 10\nrun\nquit\n"
    out = run("postmark", input=script % (top, FILES, 400 * seconds, seed))
    # Postmark's own figure counts whole seconds.
    return float(re.search(r"transactions\s*\n?.*?\((\d+) per second\)", out).group(1))


def inside(pid="0"):
    (GROUP / "cgroup.procs").write_text(str(pid))


def trace_of(args, load, seed):
    return args.lab / ("%s-%d.parquet" % (load, seed))


def measure(args, disk, name, load_name, share, seed, number):
    top = disk.top / "fast" / str(number)
    slow, mnt = disk.path / str(number), disk.top / "mnt"
    top.mkdir(parents=True)
    slow.mkdir()
    mail = load_name == "mail"
    load = None if mail else LOADS[load_name](seed)
    options, first = POLICIES[name]
    options = options.format(period=max(args.seconds // 4, 1))
    if load and not first:
        load.fill(slow)
    size = FILES * (16 << 10 if mail else BYTES) * (2 if load_name == "mixed" else 1)
    quota = [] if "--quota" in options else ["--quota", "0=%d" % (size * share // 100)]
    words = [args.isotherm, "mount", "--fast", top, "--slow", slow, *options.split(), *quota, mnt]

    def start():
        server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=inside)
        wait_ready(server)
        return server

    def end(server):
        run("umount", str(mnt))
        server.wait()

    if load and first:
        server = start()
        load.fill(mnt)
        end(server)
    # When the clients begin, neither the kernel nor the mount has contents of the files in memory.
    disk.forget()
    server = start()
    try:
        if name == "type-aware":
            run(args.isotherm, "files", "policy", mnt / "web", "cache-ondemand", "--share", "50")
        os.sync()
        recorder = None
        if args.lab and name == lab.DISK:
            trace_of(args, load_name, seed).unlink(missing_ok=True)
            recorder = lab.Recorder(args.isotherm, mnt, trace_of(args, load_name, seed))
            time.sleep(1)
        child = os.fork()
        if child == 0:
            inside()
            try:
                value = postmark(mnt, seed, args.seconds) if mail else clients(load, mnt, seed, args.seconds)
                (disk.top / "value").write_text(str(value))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status:
            raise SystemExit("the clients died (%d): does the limit of memory suffice?" % status)
        if recorder:
            print(json.dumps({"load": load_name, "recorded": recorder.end()}), flush=True)
        return float((disk.top / "value").read_text())
    finally:
        end(server)
        (disk.top / "value").unlink(missing_ok=True)
        shutil.rmtree(top)


def table(results):
    cells = {}
    for r in results:
        cells.setdefault((r["load"], r["policy"]), {}).setdefault(r["share"], []).append(r["rate"])
    shares = sorted({r["share"] for r in results})
    print("| load | policy | " + " | ".join("%d %%" % s for s in shares) + " |\n|---|---|" + "---|" * len(shares))
    for (load, policy), row in cells.items():
        mean = lambda s: "%.0f" % (sum(row[s]) / len(row[s])) if s in row else ""
        print("| %s | %s | %s |" % (load, policy, " | ".join(mean(s) for s in shares)))
    loads = [r["machine_load"] for r in results]
    print("\nload of the machine (one minute): %.1f to %.1f; %d runs" % (min(loads), max(loads), len(results)))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--isotherm", default=HERE / "../../target/release/isotherm", type=lambda s: pathlib.Path(s).resolve())
    p.add_argument("--seconds", type=int, default=40)
    p.add_argument("--shares", default="25,50,75")
    p.add_argument("--loads", default="mail,web,zipf,file,mixed")
    p.add_argument("--policies", default=",".join(POLICIES))
    p.add_argument("--seeds", default="1,2,3,4,5")
    p.add_argument("--results", type=pathlib.Path)
    p.add_argument("--lab", type=pathlib.Path)
    args = p.parse_args()
    numbers = lambda text: [int(n) for n in text.split(",")]
    if args.lab:
        args.lab.mkdir(parents=True, exist_ok=True)
    GROUP.mkdir(exist_ok=True)
    (GROUP / "memory.limit_in_bytes").write_text(str(MEMORY))
    with tempfile.TemporaryDirectory(dir="/dev/shm", ignore_cleanup_errors=True) as top:
        disk = Disk(args.isotherm, pathlib.Path(top))
        (disk.top / "mnt").mkdir()
        results, number = [], 0
        try:
            for seed in numbers(args.seeds):
                for load in args.loads.split(","):
                    for share in numbers(args.shares):
                        for name in args.policies.split(","):
                            # The disk alone does not depend on the share; type-aware needs two kinds of data.
                            if (name == "hdd" and share != numbers(args.shares)[0]) or (name == "type-aware" and load != "mixed"):
                                continue
                            number += 1
                            rate = measure(args, disk, name, load, share, seed, number)
                            results.append({"load": load, "policy": name, "share": share, "seed": seed, "rate": rate, "machine_load": os.getloadavg()[0]})
                            print(json.dumps(results[-1]), flush=True)
                            if args.results:
                                with open(args.results, "a") as f:
                                    f.write(json.dumps(results[-1]) + "\n")
        finally:
            disk.end()
            GROUP.rmdir()
    table(results)
    if args.lab and set(args.policies.split(",")) - set(lab.ONLY_REAL):
        modelled = []
        for load, seed in sorted({(r["load"], r["seed"]) for r in results if r["policy"] == lab.DISK}):
            for share in numbers(args.shares):
                rates = lab.replay(args.isotherm, trace_of(args, load, seed), args.policies.split(","), share, CLIENTS)
                modelled += [{"load": load, "seed": seed, "share": share, "policy": p, "rate": r} for p, r in rates.items()]
        lab.table(results, modelled)


main()
