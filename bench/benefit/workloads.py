"""Workloads that `rivals.py` generates, each from a seed, as CSV files that the lab reads."""

import random

KIB = 1 << 10
MIB = 1 << 20
HEAD = "time_ns,device,op,offset,length\n"


class Zipf:
    """Ranks 0 to n-1 with probabilities close to 1/(rank+1)^theta, scattered over n places."""

    def __init__(self, rng, n, theta):
        self.rng, self.n, self.power = rng, n, 1 / (1 - theta)
        self.places = list(range(n))
        rng.shuffle(self.places)

    def __call__(self):
        return self.places[min(self.n - 1, int(self.n * self.rng.random() ** self.power))]


def random_writes(rng):
    """Writes at random places of 1 GiB, 30 a second."""
    now = 0.0
    for _ in range(20_000):
        now += rng.expovariate(30)
        yield now, "W", rng.randrange(MIB // 4) * 4 * KIB, rng.choice([4, 4, 8, 16]) * KIB


def few_writes(rng):
    """Every few seconds some writes, most of them to the same places: a server that is nearly idle."""
    now, hot = 0.0, Zipf(rng, 400, 0.8)
    log = 512 * MIB
    for _ in range(1500):
        now += rng.expovariate(1 / 5)
        for _ in range(rng.randrange(1, 4)):
            now += rng.expovariate(200)
            yield now, "W", hot() * 24 * KIB, 4 * KIB
        yield now, "W", log, 4 * KIB
        log += 4 * KIB


def write_bursts(rng):
    """Bursts of hundreds of writes, seconds apart."""
    now, hot = 0.0, Zipf(rng, 65_536, 0.6)
    for _ in range(60):
        now += rng.expovariate(1 / 10)
        for i in range(rng.choice([50, 200, 800])):
            yield now + i * 1e-5, "W", hot() * 16 * KIB, rng.choice([4, 8, 16]) * KIB
        now += 0.1


def mostly_writes(rng):
    """95 % writes and 5 % reads, at random places and in a log."""
    now, hot, log = 0.0, Zipf(rng, 40_000, 0.5), 2048 * MIB
    for _ in range(20_000):
        now += rng.expovariate(40)
        if rng.random() < 0.3:
            yield now, "W", log, 8 * KIB
            log += 8 * KIB
        else:
            yield now, "W" if rng.random() < 0.93 else "R", hot() * 32 * KIB, 4 * KIB


def database(rng, writes=0.35, rate=25):
    """Transactions: pages of 8 KiB by their popularity, and a log that is written at the end of each; dirty pages go in bursts."""
    now, hot, log = 0.0, Zipf(rng, 300_000, 0.92), 4096 * MIB
    dirty = set()
    for i in range(9_000):
        now += rng.expovariate(rate)
        for _ in range(rng.randrange(1, 6)):
            page = hot()
            yield now, "R", page * 8 * KIB, 8 * KIB
            if rng.random() < writes:
                dirty.add(page)
        yield now, "W", log, rng.choice([4, 4, 8, 16]) * KIB
        log += 16 * KIB
        if i % 50 == 49:
            for page in sorted(dirty):
                yield now, "W", page * 8 * KIB, 8 * KIB
            dirty.clear()


def write_back_database(rng):
    """A database whose pages are in memory, so that nearly all that reaches the disk are writes of the same pages and of a log."""
    now, hot, log = 0.0, Zipf(rng, 60_000, 0.9), 1024 * MIB
    for _ in range(40_000):
        now += rng.expovariate(60)
        x = rng.random()
        if x < 0.25:
            yield now, "W", log, 4 * KIB
            log += 4 * KIB
        else:
            yield now, "W" if x < 0.93 else "R", hot() * 16 * KIB, 16 * KIB


def busy_server(rng):
    """More small requests than the disk can do for minutes, to a hot tenth of the data and to the rest."""
    now, hot = 0.0, Zipf(rng, 30_000, 0.9)
    for i in range(60_000):
        now += rng.expovariate(500 if (i // 6000) % 2 == 0 else 60)
        place = hot() if rng.random() < 0.85 else rng.randrange(100_000)
        yield now, "W" if rng.random() < 0.4 else "R", place * 64 * KIB, rng.choice([4, 8, 8, 16, 64]) * KIB


def files(rng):
    """Whole files of 4 KiB to 4 MiB, read and now and then written, some often."""
    sizes = [max(4, int(4 * 2 ** rng.triangular(0, 10, 2))) * KIB for _ in range(4000)]
    starts, at = [], 0
    for size in sizes:
        starts.append(at)
        at += (size + 64 * KIB - 1) // (64 * KIB) * 64 * KIB
    now, hot = 0.0, Zipf(rng, len(sizes), 0.8)
    for _ in range(8000):
        now += rng.expovariate(4)
        f, op = hot(), "W" if rng.random() < 0.15 else "R"
        for i in range(0, sizes[f], 64 * KIB):
            yield now, op, starts[f] + i, min(64 * KIB, sizes[f] - i)
            now += 0.0005


def scan_and_hot(rng):
    """A popular set, and from time to time a scan of everything."""
    now, hot, at = 0.0, Zipf(rng, 16_384, 0.9), 0
    for i in range(40_000):
        now += rng.expovariate(50)
        if i // 4000 % 3 == 2:
            yield now, "R", at % 1024 * MIB, 32 * KIB
            at += 1
        else:
            yield now, "W" if rng.random() < 0.2 else "R", hot() * 64 * KIB + rng.randrange(16) * 4 * KIB, 4 * KIB


def loop(rng, extents=2000, rounds=8, in_order=False):
    """The same extents again and again, in a fixed order, 50 a second."""
    order = list(range(extents))
    if not in_order:
        rng.shuffle(order)
    for i in range(rounds * extents):
        yield i * 0.02, "R", order[i % extents] * 64 * KIB, 4 * KIB


KINDS = {f.__name__.replace("_", "-"): f for f in (random_writes, few_writes, write_bursts, mostly_writes, database, write_back_database,
                                                   busy_server, files, scan_and_hot)}


def write(file, requests):
    """Writes a trace. Returns the number of its requests."""
    count = 0
    with open(file, "w", encoding="ascii") as out:
        out.write(HEAD)
        for now, op, offset, length in requests:
            out.write(f"{int(now * 1e9)},0,{op},{offset},{length}\n")
            count += 1
    return count
