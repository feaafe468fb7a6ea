"""The lab's part of loris.py: replays the accesses of a real run, recorded with `isotherm files record`, over models of the same disks, and
judges the claims of Loris V-B to V-D by the same rule for both.

In the lab, the trace is that below the page cache, files are whole pieces of 64 KiB, and the policies work on blocks. `type-aware` by
directories exists only in the real run. The claims are directions: figures of the lab and of a real disk cannot be compared, but their
order can.
"""

import json
import pathlib
import signal
import subprocess

DISK = "hdd"
HOT = ("hot-dst-5s", "hot-dst-dynamic")
COLD = ("cold-dst-plain", "cold-dst-dynamic")
CACHES = ("cache-interval", "cache-ondemand")
ALL = ("mail", "file", "web", "zipf", "mixed")
# Policies of `mount` that the lab does not have, or not under one name.
ONLY_REAL = ("type-aware", DISK)


def over(better, worse, factor=1.0):
    """All of `better` are faster than all of `worse`; the figure is the smallest gain in per cent."""

    def judge(rates):
        gain = min(rates[b] for b in better) / max(rates[w] for w in worse)
        return gain > factor, 100 * (gain - 1)

    return judge


def best_of(some, others):
    """Whether the best of `some` is as fast as each of the others (within 5 %)."""

    def judge(rates):
        gain = max(rates[s] for s in some) / max(rates[o] for o in others)
        return gain >= 0.95, 100 * (gain - 1)

    return judge


# Experiment, claim, loads, rule.
CLAIMS = [
    ("loris-2-5", "every Hot-DST is well faster than the disk alone", ("zipf",), over(HOT, (DISK,), 1.05)),
    ("loris-2-5", "dynamic is well faster than every 5 s", ("mail",), over(HOT[1:], HOT[:1], 1.05)),
    ("loris-6-9", "Cold-DST is noticeably faster than the disk alone", ("zipf",), over(COLD, (DISK,), 1.05)),
    ("loris-6-9", "locality shifts: dynamic Cold-DST is faster than plain", ("zipf",), over(COLD[1:], COLD[:1])),
    ("loris-6-9", "no locality: plain is faster than dynamic", ("web",), over(COLD[:1], COLD[1:])),
    ("loris-10-13", "both ways of caching are well faster than the disk alone", ("zipf",), over(CACHES, (DISK,), 1.05)),
    ("loris-10-13", "on-demand caching is faster than interval-driven", ("mail", "file", "web", "zipf"), over(CACHES[1:], CACHES[:1])),
    ("loris-10-13", "on-demand caching is slower than dynamic Hot-DST", ("mail", "file"), over(HOT[1:], CACHES[1:])),
    ("loris-10-13", "on-demand caching is faster than dynamic Hot-DST", ("web", "zipf"), over(CACHES[1:], HOT[1:])),
    ("loris-10-13", "the better Cold-DST meets or exceeds all others", ("mail", "file", "web"), best_of(COLD, HOT + CACHES)),
    ("loris-14", "type-aware is faster than dynamic Hot-DST", ("mixed",), over(("type-aware",), HOT[1:])),
    ("loris-14", "type-aware is faster than on-demand caching", ("mixed",), over(("type-aware",), CACHES[1:])),
]


class Recorder:
    """Records the operations of the clients of a mount until `end`."""

    def __init__(self, program, mount, out):
        words = [program, "files", "record", mount, "--out", out, "--json"]
        self.out = pathlib.Path(out)
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        text, errors = self.process.communicate()
        if self.process.returncode:
            raise SystemExit("the recording failed: " + errors)
        return json.loads(text)


def replay(program, trace, policies, share, clients):
    """Requests per second of each policy, with a fast tier of this share of the data that the trace touches, and of the disk alone."""
    policies = [p for p in policies if p not in ONLY_REAL]
    words = [program, "compare", trace, "--policies", ",".join(policies), "--fast-size", "%d%%" % share]
    # Flash that is never the limit, as in the real run, and the disk whose model paces the real run's device.
    words += ["--extent", "64K", "--slow", "wd5000aaks", "--flash", "ideal", "--depth", str(clients), "--json"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    rows = {row["name"]: row["report"]["throughput_iops"] for row in json.loads(done.stdout)["rows"]}
    rates = {p: rows[p] for p in policies}
    rates[DISK] = rows["hdd-only"]
    return rates


def verdict(judge, by_share):
    """Whether a claim holds at every share, and the figures; `not run` if a policy is missing."""
    try:
        found = [(share, *judge(rates)) for share, rates in sorted(by_share.items())]
    except KeyError:
        return "not run", ""
    if not found:
        return "not run", ""
    held = [holds for _, holds, _ in found]
    word = "holds" if all(held) else "does not" if not any(held) else "at some sizes"
    return word, ", ".join("%d %%: %+.0f %%" % (share, gain) for share, _, gain in found)


def mean(results, load, disk_everywhere=True):
    """Mean rates over the seeds, by share and policy. The disk alone was measured at one share only."""
    sums = {}
    for r in results:
        if r["load"] == load:
            sums.setdefault(r["share"], {}).setdefault(r["policy"], []).append(r["rate"])
    rates = {s: {p: sum(v) / len(v) for p, v in of.items()} for s, of in sums.items()}
    disk = [of[DISK] for of in rates.values() if DISK in of]
    if disk_everywhere and disk:
        for of in rates.values():
            of.setdefault(DISK, disk[0])
    return rates


def table(real, lab):
    """A table of the verdicts of both sides. `real` and `lab` are lists of results."""
    print("\n| experiment | load | claim | real | | lab | | agree |\n|---|---|---|---|---|---|---|---|")
    agree = judged = 0
    for experiment, claim, loads, judge in CLAIMS:
        for load in loads:
            (a, shown), (b, modelled) = (verdict(judge, mean(side, load)) for side in (real, lab))
            if a == "not run":
                continue
            same = "" if b == "not run" else "yes" if a == b else "**no**"
            judged += same != ""
            agree += same == "yes"
            print("| %s | %s | %s | %s | %s | %s | %s | %s |" % (experiment, load, claim, a, shown, b, modelled, same))
    print("\n%d of %d claims have the same verdict on both sides" % (agree, judged))
