#!/usr/bin/env python3
"""Writers that outgrow the free space of the fast tier while cold files on it could move: how far does each get?

    bench/files/outgrow.py [--seconds-of-slow 30]           (root)
    bench/files/outgrow.py --cost ROUNDS

The fast tier is an ext4 of 256 MiB in memory, the slow one a directory below --dir. Cold files leave 24 MiB of the fast tier free, a little
more than the reserve of one writer. Each writer opens its file and then writes more than that. Printed for each way of I/O: MiB that were
written before the first error, and the longest time of one call. `before` is another build of the program ($BEFORE), for comparison.
With --cost, the fast tier has 3 GiB and nothing is short: files of 4 KiB that are created, written and closed in a second, and writes of 4 KiB.
Environment: ISOTHERM, the program (target/release/isotherm).
"""

import argparse
import errno
import mmap
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
TIER, FREE, COLD = 256, 24, 4
PASS = ["--passthrough"]


def paced(f, total, rate, clock):
    """Writes of 1 MiB, no faster than the rate."""
    begun = time.monotonic()
    for n in range(total):
        clock(lambda: os.write(f, bytes([n % 251]) * MIB))
        ahead = (n + 1) / rate - (time.monotonic() - begun)
        if rate and ahead > 0:
            time.sleep(ahead)


def flat_out(f, total, clock):
    data = b"x" * (4 * MIB)
    for _ in range(total // 4):
        clock(lambda: os.write(f, data))


def one_call(f, total, clock):
    """All in one write."""
    data = b"x" * (total * MIB)
    done = clock(lambda: os.write(f, data))
    if done < len(data):
        raise OSError(errno.ENOSPC, "short")


def holes(f, total, clock):
    """A page in each 64 KiB, from the end to the beginning."""
    for n in reversed(range(total * 256)):
        clock(lambda: os.pwrite(f, b"y" * 4096, n << 16), 4096)


def allocates(f, total, clock):
    for n in range(total // 8):
        clock(lambda: os.posix_fallocate(f, n * 8 * MIB, 8 * MIB), 8 * MIB)


def maps(f, total, clock):
    """Stores into a shared mapping of a file that has no space yet."""
    os.ftruncate(f, total * MIB)
    with mmap.mmap(f, total * MIB) as m:
        for n in range(total):
            clock(lambda: m.__setitem__(slice(n * MIB, (n + 1) * MIB), b"z" * MIB), MIB)


def writers(slow):
    """Name, number of writers at once, MiB of each, what each does."""
    return [
        ("1 MiB/s", 1, slow, lambda f, t, c: paced(f, t, 1, c)),
        ("100 MiB/s", 1, 200, lambda f, t, c: paced(f, t, 100, c)),
        ("as fast as possible", 1, 200, flat_out),
        ("one call", 1, 200, one_call),
        ("four at once", 4, 48, flat_out),
        ("leaves holes", 1, 40, holes),
        ("fallocate", 1, 200, allocates),
        ("shared mapping", 1, 120, maps),
    ]


def child(path, total, how, out):
    """In a process of its own: bytes written and the longest call go to `out` after each call, for a store may kill it."""
    done, longest = 0, 0.0

    def clock(call, size=None):
        nonlocal done, longest
        begun = time.monotonic()
        try:
            got = call()
        finally:
            longest = max(longest, time.monotonic() - begun)
            os.pwrite(out, f"{done:20} {longest:20.6f}".encode(), 0)
        done += size or got
        os.pwrite(out, f"{done:20} {longest:20.6f}".encode(), 0)
        return got

    f = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        how(f, total, clock)
    except OSError as e:
        os._exit(28 if e.errno == errno.ENOSPC else 5)
    os._exit(0)


class World:
    """A mount of the two tiers."""

    def __init__(self, work, program, options, size=TIER):
        self.work, self.mnt = work, work / "mnt"
        for d in ("fast", "slow", "mnt"):
            (work / d).mkdir()
        image = pathlib.Path(tempfile.mkstemp(dir="/dev/shm", prefix="isotherm-outgrow.")[1])
        self.image = image
        os.truncate(image, size * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, work / "fast"], check=True)
        (work / "fast/lost+found").rmdir()
        command = [program, "mount", "--no-moves", "--watermarks", "100,100", "--fast", work / "fast", "--slow", work / "slow", *options, self.mnt]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.server.stdout.readline().strip() == "ready", "the mount failed"

    def fill(self):
        """Cold files, so that exactly FREE is left."""
        n = 0
        while self.free() > (FREE + COLD) * MIB:
            (self.mnt / f"cold{n}").write_bytes(os.urandom(COLD * MIB))
            n += 1
        f = os.open(self.mnt / "last", os.O_RDWR | os.O_CREAT, 0o600)
        os.write(f, os.urandom(self.free() - FREE * MIB))
        os.close(f)
        time.sleep(0.7)

    def free(self):
        s = os.statvfs(self.work / "fast")
        return s.f_bavail * s.f_frsize

    def run(self, count, total, how):
        """(MiB written, longest call in ms, how it ended) of all writers together."""
        children = []
        for n in range(count):
            out, name = tempfile.mkstemp(dir=self.work)
            os.unlink(name)
            pid = os.fork()
            if not pid:
                child(self.mnt / f"w{n}", total, how, out)
            children.append((pid, out))
        ends, done, longest = set(), 0, 0.0
        for pid, out in children:
            status = os.waitpid(pid, 0)[1]
            ends.add(os.waitstatus_to_exitcode(status))
            got = os.pread(out, 64, 0).split() or [b"0", b"0"]
            done += int(got[0])
            longest = max(longest, float(got[1]))
            os.close(out)
        words = {0: "", 28: "ENOSPC", 5: "error", -signal.SIGBUS: "SIGBUS"}
        return done / MIB, longest * 1000, " ".join(words.get(e, str(e)) for e in sorted(ends) if e)

    def end(self):
        subprocess.run(["umount", self.mnt], check=True)
        self.server.wait()
        subprocess.run(["umount", self.work / "fast"], check=True)
        self.image.unlink()


def rate(count, call):
    """Calls in a second."""
    begun = time.monotonic()
    for n in range(count):
        call(n)
    return count / (time.monotonic() - begun)


def cost(ways, rounds, directory):
    """Medians of all rounds, in which all ways take turns."""

    def create(world, n):
        f = os.open(world.mnt / str(n), os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(f, b"x" * 4096)
        os.close(f)

    found = {name: [] for name, _, _ in ways}
    for name, binary, options in ways * rounds:
        with tempfile.TemporaryDirectory(dir=directory, prefix="isotherm-outgrow.") as work:
            world = World(pathlib.Path(work), binary, options, 3072)
            creates = rate(5000, lambda n: create(world, n))
            f = os.open(world.mnt / "large", os.O_CREAT | os.O_RDWR, 0o600)
            os.write(f, b"x" * (64 * MIB))
            # The kernel does not ask any more.
            time.sleep(0.2)
            writes = rate(30000, lambda n: os.pwrite(f, b"y" * 4096, n * 7919 % 16384 * 4096))
            os.close(f)
            world.end()
            found[name].append((creates, writes))
    for name, all_rounds in found.items():
        creates, writes = (statistics.median(column) for column in zip(*all_rounds))
        print(f"{name}: {creates:.0f} creates/s, {writes:.0f} writes/s (medians of {rounds})")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds-of-slow", type=int, default=30)
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--only", default="")
    parser.add_argument("--cost", type=int, metavar="ROUNDS")
    args = parser.parse_args()
    program = os.environ.get("ISOTHERM", HERE / "../../target/release/isotherm")
    ways = [("passthrough", program, PASS), ("passthrough=reads", program, ["--passthrough=reads"])]
    if os.environ.get("BEFORE"):
        ways.insert(0, ("before", os.environ["BEFORE"], PASS))
    if args.cost:
        return cost(ways, args.cost, args.dir)
    all_writers = [w for w in writers(args.seconds_of_slow) if args.only in w[0]]
    print("| writer | MiB |", *(f"{w[0]} | longest call |" for w in ways))
    print("|---|--:|" + "--:|--:|" * len(ways))
    for name, count, total, how in all_writers:
        row = f"| {name} | {count * total} |"
        for _, binary, options in ways:
            with tempfile.TemporaryDirectory(dir=args.dir, prefix="isotherm-outgrow.") as work:
                world = World(pathlib.Path(work), binary, options)
                world.fill()
                done, longest, end = world.run(count, total, how)
                world.end()
            row += f" {done:.0f}{' ' + end if end else ''} | {longest:.0f} ms |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
