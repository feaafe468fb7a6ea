"""In the guest: a volume over two members under dm-log-writes, a load with FLUSH and FUA, and cuts at random moments.

    /dev/mapper/fast  linear  ->  lw-fast  log-writes  ->  /dev/scratch0, log on /dev/scratch2
    /dev/mapper/slow  linear  ->  lw-slow  log-writes  ->  /dev/scratch1, log on /dev/scratch3

dm-log-writes logs a write when a FLUSH that covers it completes, so the log of one member says exactly what each FLUSH made
durable, but two logs have no common order, and what was not flushed is not there. A cut gives both: the linear targets on
top are suspended, which drains what is in flight and holds back the rest; between the marks `cut-N` and `end-N` a FLUSH
of our own, sent below them, brings the completed and unflushed writes into the logs. The replay ignores that FLUSH.
One member stops a little before the other. That is a state a crash can leave: what the later one did meanwhile
depended on nothing that the earlier one did after it stopped.

Usage: log_writes_guest.py ISOTHERM OUT SEED CUTS. Leaves in OUT: v.toml and, per cut, the arrays durable-N and issued-N.
"""

import array
import os
import random
import shutil
import subprocess
import sys
import threading
import time

from nbd import BLOCK, FLUSH, FUA, READ, WRITE, Nbd, stamp, version_of

DEPTH = 16
HOT_BLOCKS = 1024  # 4 MiB: less than the fast member, moved along often enough that extents go up and down


def run(*words):
    subprocess.run(words, check=True)


def sectors(device):
    return int(subprocess.check_output(["blockdev", "--getsz", device]))


def set_up():
    for name, data, log in (("fast", 0, 2), ("slow", 1, 3)):
        size = sectors(f"/dev/scratch{data}")
        run("dmsetup", "create", f"lw-{name}", "--table", f"0 {size} log-writes /dev/scratch{data} /dev/scratch{log}")
        run("dmsetup", "create", name, "--table", f"0 {size} linear /dev/mapper/lw-{name} 0")


class Load:
    """Writes, reads and FLUSHes with several in flight; knows of every block what must and what may be there."""

    def __init__(self, nbd, rng):
        blocks = nbd.size // BLOCK
        self.nbd, self.rng, self.blocks = nbd, rng, blocks
        self.issued = array.array("I", bytes(4 * blocks))  # the last version sent
        self.acked = array.array("I", bytes(4 * blocks))  # the last version answered
        self.durable = array.array("I", bytes(4 * blocks))  # covered by an answered FLUSH, or by FUA
        self.lock = threading.Lock()
        self.busy = set()  # blocks with a request in flight: overlapping ones have no order
        self.flights = {}
        self.cookie = 0
        self.hot = 0
        self.counts = {"writes": 0, "reads": 0, "flushes": 0, "fua": 0}

    def start(self):
        rng = self.rng
        self.cookie += 1
        if rng.random() < 0.03:
            # What is answered now is durable when this FLUSH is answered; what is in flight need not be.
            self.flights[self.cookie] = (FLUSH, array.array("I", self.acked), False)
            self.nbd.send(FLUSH, self.cookie)
            return
        if rng.random() < 0.005:
            self.hot = rng.randrange(self.blocks - HOT_BLOCKS)
        near = rng.random() < 0.8
        count = rng.choice((1, 1, 1, 2, 4, 16))
        first = self.hot + rng.randrange(HOT_BLOCKS) if near else rng.randrange(self.blocks)
        span = range(first, min(first + count, self.blocks))
        if any(b in self.busy for b in span):
            return
        self.busy.update(span)
        if rng.random() < 0.3:
            self.flights[self.cookie] = (READ, span, False)
            self.nbd.send(READ, self.cookie, first * BLOCK, len(span) * BLOCK)
            return
        fua = rng.random() < 0.05
        with self.lock:
            for b in span:
                self.issued[b] += 1
        data = b"".join(stamp(b, self.issued[b]) for b in span)
        self.flights[self.cookie] = (WRITE, span, fua)
        self.nbd.send(WRITE, self.cookie, first * BLOCK, data=data, flags=FUA if fua else 0)

    def finish(self):
        cookie, data = self.nbd.reply()
        kind, what, fua = self.flights.pop(cookie)
        if kind == FLUSH:
            with self.lock:
                self.durable = array.array("I", map(max, self.durable, what))
            self.counts["flushes"] += 1
            return
        self.busy.difference_update(what)
        if kind == READ:
            self.counts["reads"] += 1
            for i, b in enumerate(what):
                found = version_of(b, data[i * BLOCK : (i + 1) * BLOCK])
                if found != self.issued[b]:
                    sys.exit(f"block {b} reads as version {found}, not {self.issued[b]}, with no crash at all")
            return
        self.counts["writes"] += 1
        with self.lock:
            for b in what:
                self.acked[b] = self.issued[b]
                if fua:
                    self.durable[b] = self.issued[b]
        self.counts["fua"] += fua

    def run(self, stop):
        while not stop.is_set():
            while len(self.flights) < DEPTH:
                self.start()
            self.finish()
        while self.flights:
            self.finish()


def cut(load, number, out, below, rng):
    members = ["fast", "slow"]
    rng.shuffle(members)
    with load.lock:
        durable = load.durable[:]
    run("dmsetup", "suspend", "--nolockfs", *members)
    for name in members:
        run("dmsetup", "message", f"lw-{name}", "0", "mark", f"cut-{number}")
    for name in members:
        os.fsync(below[name])
    for name in members:
        run("dmsetup", "message", f"lw-{name}", "0", "mark", f"end-{number}")
    run("dmsetup", "resume", *members)
    with load.lock:
        issued = load.issued[:]
    for what, values in (("durable", durable), ("issued", issued)):
        with open(f"{out}/{what}-{number}", "wb") as file:
            file.write(values.tobytes())


def main():
    isotherm, out, seed, cuts = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    set_up()
    os.makedirs("/tmp/volume")
    os.chdir("/tmp/volume")
    run(isotherm, "create", "v", "--fast", "/dev/mapper/fast", "--slow", "/dev/mapper/slow", "--policy", "greendm,LT=16,HT=32")
    # A short commit interval, so that the cuts meet the engine in the middle of writing down its map.
    with open("v.toml", encoding="utf-8") as file:
        text = file.read()
    if "commit_interval_s = 5.0" not in text:
        sys.exit("v.toml has no commit_interval_s = 5.0 to shorten")
    with open("v.toml", "w", encoding="utf-8") as file:
        file.write(text.replace("commit_interval_s = 5.0", "commit_interval_s = 0.3"))
    shutil.copy("v.toml", out)
    with subprocess.Popen([isotherm, "serve", "v", "--nbd", "unix:/tmp/volume/sock"]) as server:
        load = Load(Nbd("/tmp/volume/sock", 60), random.Random(seed))
        below = {name: os.open(f"/dev/mapper/lw-{name}", os.O_RDWR) for name in ("fast", "slow")}
        rng, stop, failed = random.Random(seed + 1), threading.Event(), []

        def cutter():
            try:
                for number in range(cuts):
                    time.sleep(rng.uniform(0.05, 0.5))
                    cut(load, number, out, below, rng)
            except BaseException as error:  # told by the main thread
                failed.append(error)
            stop.set()

        thread = threading.Thread(target=cutter, daemon=True)
        thread.start()
        load.run(stop)
        thread.join()
        if failed:
            sys.exit(f"cutting failed: {failed[0]}")
        load.nbd.close()
        stats = dict(line.split(maxsplit=1) for line in subprocess.check_output([isotherm, "stats", "v"], text=True).splitlines())
        run(isotherm, "stop", "v")
        if server.wait() != 0:
            sys.exit(f"serve ended with status {server.returncode}")
    for descriptor in below.values():
        os.close(descriptor)
    # Removing a log-writes target writes the last of its log and the count of entries.
    run("dmsetup", "remove", "fast", "slow")
    run("dmsetup", "remove", "lw-fast", "lw-slow")
    run("sync")
    moved = {what: int(stats[what]) for what in ("promotions", "demotions")}
    if not all(moved.values()):
        sys.exit(f"nothing moved between the members ({moved}): nothing is proved")
    print("guest: " + ", ".join(f"{n} {what}" for what, n in (load.counts | moved).items()), flush=True)


main()
