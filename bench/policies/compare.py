#!/usr/bin/env python3
"""Every preset on each long real trace: the tables of docs/policies-compared.md, and a picture for each trace.

    bench/policies/compare.py [OUT_DIR]       default: docs

Needs a release build (ISOTHERM names another program) and the traces outside the tree in ISOTHERM_TRACES; missing ones are
named and skipped. Standard library only. Everything but the text around the tables is from this run.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ISOTHERM = os.environ.get("ISOTHERM", str(ROOT / "target/release/isotherm"))
TRACES = pathlib.Path(os.environ.get("ISOTHERM_TRACES", ROOT / "fixtures"))

# Name, file, extent, at the times of the trace or hits only, special options.
LONG = [
    ("linux-mysql", "linux-mysql.load.zst", "64K", "trace"),
    ("linux-webserver-2", "linux-webserver-2.load.zst", "64K", "trace"),
    ("cloudphysics", "cloudphysics-io.vscsi.zst", "64K", "trace"),
    ("msr-web_0", "msr-web_0-head65k.csv.zst", "64K", "trace"),
    ("msr-rsrch_1", "msr-rsrch_1.csv.zst", "64K", "trace"),
    ("dtrs", "dtrs-0-200s.trace.zst", "64K", "trace"),
    ("hplajw", "hplajw-1week.csv.zst", "64K", "trace"),
    ("arc-OLTP", "arc-OLTP.lis.zst", "4K", "hits"),
    ("arc-P3", "arc-P3.lis.zst", "4K", "hits"),
    ("sprite", "lirs-sprite.txt.zst", "4K", "hits"),
]
# In a trace of an hour, policies that plan once a day would never plan.
SHORTER = {"hro": "hro,period=300", "hot": "hot,period=300"}


# This program writes the part of the page after this mark; the part before it is written by hand.
MARK = "<!-- tables of bench/policies/compare.py -->"
# "Polite" in the tables.
POLITE = "p99_limit_s=0.05"


def isotherm(*words):
    done = subprocess.run([ISOTHERM, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"isotherm {' '.join(words)}: {done.stderr}")
    return done.stdout


def number(x, digits=3):
    if x is None:
        return "–"
    return f"{x:.{digits}g}" if x < 1000 else f"{x:,.0f}".replace(",", " ")


def timed_table(data, polite):
    rows = ["| policy | hits % | mean ms | p99 ms | polite: hits % | mean ms | p99 ms | J | fast writes MB | moved MB | hit regret | cost regret |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    yields = {row["report"]["policy"] + row["kind"]: row["report"] for row in polite["rows"]}

    def times(row, r):
        return [number(100 * r["fast_hit_ratio"]) if row["kind"] != "baseline" else "–",
                number(1e3 * r["latency_mean_s"]), number(1e3 * r["latency_p99_s"])]

    def polite_times(row):
        return times(row, yields[row["report"]["policy"] + row["kind"]]) if row["kind"] != "baseline" else ["–"] * 3

    for row in sorted(data["rows"], key=lambda row: yields[row["report"]["policy"] + row["kind"]]["latency_mean_s"]):
        r = row["report"]
        baseline = row["kind"] == "baseline"
        rows.append("| {} | {} | {} | {} | {} | {} | {} | {} |".format(
            f"*{row['name']}*" if baseline else f"`{row['policy']}`",
            " | ".join(times(row, r)),
            " | ".join(polite_times(row)),
            number(r["energy_j"]),
            number(r["fast_write_bytes"] / 1e6) if row["name"] != "hdd-only" else "–",
            number(r["migrated_bytes"] / 1e6),
            number(row["hit_regret"], 2),
            number(row["cost_regret"], 2)))
    return rows


def hits_table(data):
    rows = ["| policy | hits % | moves per 100 accesses | hit regret |", "|---|--:|--:|--:|"]
    for row in sorted(data["rows"], key=lambda row: -row["report"]["fast_hit_ratio"]):
        if row["kind"] == "baseline":
            continue
        r = row["report"]
        moves = r["promotions"] + r["demotions"] + r["fetches"] + r["writebacks"]
        rows.append(f"| `{row['policy']}` | {number(100 * r['fast_hit_ratio'])} | "
                    f"{number(100 * moves / r['accesses'])} | {number(row['hit_regret'], 2)} |")
    return rows


def main():
    if any(word.startswith("-") for word in sys.argv[1:]) or len(sys.argv) > 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs")
    pictures = out / "policies-compared"
    pictures.mkdir(parents=True, exist_ok=True)
    presets = [p["name"] for p in json.loads(isotherm("policies", "--json"))]
    presets = [SHORTER.get(p, p) for p in presets if p not in ("linear",)]
    text = []
    for name, file, extent, clock in LONG:
        path = TRACES / file
        if not path.exists():
            text += [f"## {name}", "", f"Skipped: `{file}` is not in ISOTHERM_TRACES.", ""]
            continue
        words = ["compare", str(path), "--policies", ",".join(presets), "--fast-size", "10%", "--extent", extent]
        words += ["--hit-only"] if clock == "hits" else ["--time", "trace", "--fast", "sata-enterprise", "--slow", "exos-18tb"]
        polite = None
        if clock == "trace":
            polite = json.loads(isotherm(*words, "--set", POLITE, "--json"))
        with tempfile.TemporaryDirectory() as dir:
            isotherm(*words, f"--json={dir}/run.json", "--svg", f"{dir}/svg")
            data = json.loads(pathlib.Path(f"{dir}/run.json").read_text())
            # The other pictures repeat the tables.
            for svg in pathlib.Path(f"{dir}/svg").glob("*trade-off.svg"):
                (pictures / f"{name}.svg").write_bytes(svg.read_bytes())
        for row in data["rows"]:
            row["policy"] = row["report"]["policy"] if row["kind"] != "baseline" else row["name"]
        r = data["rows"][0]["report"]
        text += [f"## {name}", "",
                 f"{r['requests']:,} requests, {100 * r['reads'] / max(r['requests'], 1):.0f} % reads, "
                 f"{r['touched_extents']:,} extents of {extent}iB touched, a tenth of them on fast; "
                 + ("hits only." if clock == "hits" else "at the trace's own pace."), ""]
        text += hits_table(data) if clock == "hits" else timed_table(data, polite)
        text += ["", f"![{name}: trade-off](policies-compared/{name}.svg)"]
        text += [f"\nLeft out: {'; '.join(data['left_out'])}."] if data["left_out"] else []
        text += [""]
        print(f"{name}: {len(data['rows'])} rows", file=sys.stderr)
    page = out / "policies-compared.md"
    words = page.read_text().split(MARK)[0] if page.exists() else ""
    page.write_text(words + MARK + "\n\n" + "\n".join(text))


main()
