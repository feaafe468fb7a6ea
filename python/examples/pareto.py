#!/usr/bin/env python3
"""Which policy and which size of the fast tier are worth it? A sweep, and its Pareto front: time against flash.

    python examples/pareto.py TRACE [--out pareto.svg] [--limit N]

Cells run on all processors; give ``--dask ADDRESS`` to spread them over a dask cluster. ``# %%`` marks are cells of a
notebook.
"""

# %% What is asked
import argparse
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import isotherm

HERE = pathlib.Path(__file__).resolve().parent
ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
ask.add_argument("trace", nargs="?", default=HERE.parents[1] / "fixtures" / "linux-mysql.load.zst")
ask.add_argument("--out", default="pareto.svg", help="picture, .svg or .png")
ask.add_argument("--limit", type=int, default=20_000, help="requests at most")
ask.add_argument("--dask", metavar="ADDRESS", help="scheduler of a dask cluster")
args = ask.parse_args()


# %% A policy of our own, in Python: the second miss within ten seconds promotes, the one unused for longest makes room
class SecondMiss:
    WINDOW_NS = 10 * 10**9

    def __init__(self):
        self.used, self.missed = {}, {}  # fast extents in order of use; time of the last miss

    def first_touch(self, view, extent):
        return 1

    def on_access(self, view, access):
        e = access.extent
        if access.tier == 0:
            self.used.pop(e, None)
            self.used[e] = True
            return None
        again = view.now_ns - self.missed.get(e, -self.WINDOW_NS) < self.WINDOW_NS
        self.missed[e] = view.now_ns
        if access.home is None or not again:
            return None
        room = view.free(0) + view.freeing(0)
        if room == 0 and self.used:
            return [isotherm.Action.move(next(iter(self.used)), 1), isotherm.Action.move(e, 0)]
        return isotherm.Action.move(e, 0)

    def on_placed(self, view, extent, slot):
        self.used.pop(extent, None)
        if view.tier_of(slot) == 0:
            self.used[extent] = True


# %% The grid: four presets and ours, five sizes
SIZES = ["2%", "5%", "10%", "20%", "40%"]
executor = None
if args.dask:
    from dask.distributed import Client

    executor = Client(args.dask)
results = isotherm.sweep(
    traces=args.trace,
    policies=["greendm", "hot-dst-recency", "lru", "s3-fifo", SecondMiss],
    fast_size=SIZES,
    extent="64K",
    limit=args.limit,
    executor=executor,
)

# %% The front: what nothing that is as small is faster than
points = [(r["report"]["fast_bytes"] / 2**20, r["report"]["elapsed_s"], r["report"]["policy"]) for r in results]
front = sorted(p for p in points if not any(q[0] <= p[0] and q[1] <= p[1] and q[:2] != p[:2] for q in points))
for mib, seconds, policy in front:
    print(f"{mib:8.1f} MiB of flash: {seconds:8.2f} s under {policy}")

# %% The picture: a shape and a colour a policy, so that it reads in grey as well
MARKS = dict(zip(dict.fromkeys(p[2] for p in points), ["o", "s", "^", "D", "P"]))
COLOURS = dict(zip(MARKS, ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#444444"]))
figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
axes.step(
    [p[0] for p in front] + [max(p[0] for p in points) * 1.15],
    [p[1] for p in front] + [front[-1][1]],
    where="post", color="#888888", linewidth=5, alpha=0.35, label="Pareto front",
)  # fmt: skip
for policy, mark in MARKS.items():
    mine = sorted(p for p in points if p[2] == policy)
    axes.plot(
        [p[0] for p in mine],
        [p[1] for p in mine],
        marker=mark, markersize=8, markeredgecolor="white", markeredgewidth=0.7,
        color=COLOURS[policy], linewidth=1, label=policy.replace("python:", "") + " (in Python)" * (":" in policy),
    )  # fmt: skip
axes.set_xscale("log", base=2)
axes.set_xticks(sorted({p[0] for p in points}), [f"{size}\n{mib:.0f} MiB" for size, mib in zip(SIZES, sorted({p[0] for p in points}))])
axes.minorticks_off()
axes.set_ylim(bottom=0)
axes.set_xlabel("fast tier: share of what is touched")
axes.set_ylabel("elapsed time, s")
axes.set_title(f"{pathlib.Path(args.trace).name}, {results[0]['report']['requests']} requests: time against flash")
axes.grid(True, linewidth=0.4, alpha=0.5)
axes.legend(frameon=False)
figure.savefig(args.out, dpi=150)
print(f"{args.out}: written")
