#!/usr/bin/env python3
"""Heads of files (`isotherm mount --heads`): which programs that read the beginnings of files wake a sleeping disk. Needs root.

The slow tier is ext4 on a loop device, the fast one a tmpfs. A tree of pictures is on the slow tier: half of the files have 8 to 60 KiB, half
1 to 3 MiB. Before each program, all caches of the kernel are dropped. A file wakes the disk if the loop device gets a request while the
program reads it.

Usage: heads.py [--isotherm PROGRAM] [--files N]
Prints the number of files that wake the disk, and the requests of the disk, without heads and with heads of 64 and 256 KiB.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PICTURE = b"\xff\xd8\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"
HEADS = [None, "64K", "256K"]


def run(*words):
    return subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout.strip()


def first(count, step=None):
    """A program that reads the first `count` bytes, in calls of `step` bytes."""

    def look(path):
        with open(path, "rb", buffering=0) as f:
            for _ in range(count // (step or count)):
                f.read(step or count)

    return look


PROGRAMS = {
    "reads 4 KiB": first(4 << 10),
    "reads 32 KiB at once": first(32 << 10),
    "reads 32 KiB, 4 KiB each": first(32 << 10, 4 << 10),
    "reads 128 KiB at once": first(128 << 10),
    "`file`": lambda path: run("file", "-b", path),
    "`file -P bytes=32768`": lambda path: run("file", "-b", "-P", "bytes=32768", path),
}


def make(top, count):
    rng = random.Random(1)
    for i in range(count):
        small = i % 2 == 0
        size = rng.randrange(8 << 10, 60 << 10) if small else rng.randrange(1 << 20, 3 << 20)
        path = top / ("d%d" % (i % 10)) / ("f%d.jpg" % i)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(PICTURE + os.urandom(size))
        # A recently changed file gets no head.
        os.utime(path, (time.time() - 86400,) * 2)


def drop():
    os.sync()
    for _ in range(4):
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def reads(device):
    return int(pathlib.Path("/sys/block", device, "stat").read_text().split()[0])


def status(mnt):
    return json.loads(os.getxattr(mnt, "user.isotherm.status"))


def measure(args, top, device, heads):
    mnt = top / "mnt"
    words = [args.isotherm, "mount", "--fast", top / "fast", "--slow", top / "slow", "--no-moves", mnt]
    words += ["--heads", heads] if heads else []
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if server.stdout.readline() != "ready\n":
        raise SystemExit("the server did not start")
    try:
        files = sorted(mnt.glob("*/*.jpg"))
        if heads:
            for path in files:
                first(4096)(path)
            until = time.monotonic() + 60
            while status(mnt)["copies"]["heads"]["files"] < len(files):
                if time.monotonic() > until:
                    raise SystemExit("not all heads were made")
                time.sleep(0.2)
        found = {}
        for name, look in PROGRAMS.items():
            drop()
            begun, woken = reads(device), 0
            for path in files:
                before = reads(device)
                look(path)
                woken += reads(device) > before
            found[name] = (woken, reads(device) - begun)
        return found
    finally:
        run("umount", mnt)
        server.wait()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--isotherm", default=HERE / "../../target/release/isotherm", type=lambda s: pathlib.Path(s).resolve())
    p.add_argument("--files", type=int, default=200)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        top = pathlib.Path(name)
        for d in ("fast", "slow", "mnt"):
            (top / d).mkdir()
        run("truncate", "-s", "1G", top / "disk")
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", top / "disk")
        run("mount", "-t", "tmpfs", "-o", "size=2G", "fast", top / "fast")
        run("mount", "-o", "loop,noatime", top / "disk", top / "slow")
        try:
            (top / "slow/lost+found").rmdir()
            make(top / "slow", args.files)
            device = os.path.basename(run("findmnt", "-no", "SOURCE", top / "slow"))
            all_found = [measure(args, top, device, heads) for heads in HEADS]
        finally:
            run("umount", top / "slow")
            run("umount", top / "fast")
    print("| program | " + " | ".join("heads of " + h if h else "without heads" for h in HEADS) + " |\n|---|" + "--:|" * len(HEADS))
    for program in PROGRAMS:
        cells = ["%d (%d)" % found[program] for found in all_found]
        print("| %s | %s |" % (program, " | ".join(cells)))
    print("\n%d files; how many wake the disk (requests of the disk); load of the machine %.1f" % (args.files, os.getloadavg()[0]))


main()
