#!/usr/bin/env python3
"""Writes the tables and pictures of docs/classes-live.md from bench/classes/results.json.

    bench/classes/tables.py            writes them
    bench/classes/tables.py --check    fails if the page or a picture differs from the results (scripts/tidy does this)
"""

import json
import pathlib
import statistics
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench/classes/results.json"
PAGE = ROOT / "docs/classes-live.md"
IMAGES = ROOT / "docs/img"
NAMES = {"none": "no flash", "dss-lru": "LRU", "dss-lru-s": "LRU-S", "reversed": "LRU-S, indexes first", "admitted": "LRU-S, unknown admitted",
         "guessed": "LRU-S, guessed"}
ORDER = ["none", "dss-lru", "dss-lru-s", "reversed", "admitted", "guessed"]
# Groups of classes in the order of their bars, and their colours.
GROUPS = {
    "metadata": "#332288",
    "journal": "#88ccee",
    "log": "#44aa99",
    "system tables": "#117733",
    "user tables": "#999933",
    "temporary tables": "#ddcc77",
    "indexes": "#cc6677",
    "files to 64 KiB": "#117733",
    "files to 1 MiB": "#ddcc77",
    "larger files": "#cc6677",
    "unclassified": "#bbbbbb",
}


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def percent(value):
    return f"{100 * value:.1f} %"


def shares(sums):
    """The share of each group that is not empty."""
    whole = sum(sums.values())
    return {k: sums[k] / whole for k in GROUPS if whole and sums.get(k)}


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(r) + " |" for r in rows])


def wrapped(text):
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def about(results):
    """A sentence about the machine and the settings of some results."""
    abouts = [r["about"] for r in results]
    loads = sorted(x for a in abouts for x in a["load"])
    a = abouts[0]
    journal = f"a journal of {a['journal_mib']} MiB" if a.get("journal_mib") else ""
    what = ", ".join(filter(None, [a["set"], f"mounted `{a['mount']}`", journal]))
    return f"{a['machine']}; load {loads[0]:.0f} to {loads[-1]:.0f}; extents of {a['extent']}, {a['memory_mib']} MiB of memory; {what}."


def tpch(results):
    found = [(p, results[f"tpch {p}"]) for p in ORDER if f"tpch {p}" in results]
    rows = []
    for policy, r in found:
        runs = r["runs"]
        flash = policy != "none"
        rows.append([
            NAMES[policy],
            f"{mean(x['seconds'] for x in runs):.1f}",
            ", ".join(f"{x['seconds']:.1f}" for x in runs),
            *(f"{mean(x['queries'][q] for x in runs):.1f}" for q in ("2", "17", "18", "19")),
            percent(mean(x["hit_ratio"] for x in runs)) if flash else "–",
            percent(mean(x["cleaning_share"] for x in runs)) if flash else "–",
        ])
    first = found[0][1]
    flash = max(r["flash_bytes"] for _, r in found)
    text = f"{about(r for _, r in found)} Scale factor {first['about']['scale']}: {first['database_bytes'] / 2**20:.0f} MiB of database, {flash / 2**20:.0f} MiB of flash."
    text = wrapped(text) + "\n\n"
    head = ["", "mean, s", "runs, s", "query 2", "17", "18", "19", "hits", "cleaning"]
    return text + table(head, rows) + "\n\n" + contents(found, lambda r: r["contents"]) + "\n\n![What flash held, what was written and read](img/classes-tpch.svg)"


def contents(found, of):
    """The contents of flash at the end, by group of classes."""
    caches = [(p, r) for p, r in found if p != "none"]
    groups = [g for g in GROUPS if any(of(r).get(g, [0])[0] for _, r in caches)]
    rows = []
    for g in groups:
        cells = []
        for _, r in caches:
            fast, whole = of(r)[g]
            all_ = sum(v[0] for v in of(r).values())
            cells.append(f"{percent(fast / max(1, all_))} ({percent(fast / whole) if whole else '–'})")
        rows.append([g, *cells])
    return table(["of flash (of the group)", *(NAMES[p] for p, _ in caches)], rows)


def faster(lru, runs, up):
    """How many times as fast as LRU with the same seed: the median, and the range if there are several seeds."""
    ratios = sorted(r / l if up else l / r for l, r in zip(lru, runs))
    spread = f", {ratios[0]:.2f} to {ratios[-1]:.2f}" if len(ratios) > 1 else ""
    return f" ({statistics.median(ratios):.2f} ×{spread})"


def dss(results, kind, label=""):
    key = lambda p: " ".join(filter(None, [kind, p, label]))
    found = [(p, results[key(p)]) for p in ORDER if key(p) in results]
    rows = []
    lru = dict(found).get("dss-lru")
    for policy, r in found:
        ratio = lambda k, up: faster(lru["runs"][k], r["runs"][k], up) if lru and policy in ("dss-lru-s", "admitted", "guessed") else ""
        flash = policy != "none"
        rows.append([
            NAMES[policy],
            f"{r['files_per_s']:.1f}{ratio('files_per_s', True)}",
            *(f"{r[k + '_s']:.2f}{ratio(k + '_s', False)}" for k in ("find", "tar", "fsck")),
            percent(r["hit_ratio"]) if flash else "–",
            percent(r["cleaning_share"]) if flash else "–",
        ])
    a = found[0][1]["about"]
    text = f"{about(r for _, r in found)} {a['files']} files, {a['transactions']} transactions, {a['mib']} MiB of disk."
    text = wrapped(text) + "\n\n"
    head = ["", "files a second", "find, s", "tar, s", "fsck, s", "hits", "cleaning"]
    if label:
        return text + table(head, rows) + "\n\n" + contents(found, lambda r: r["contents"])
    picture = f"\n\n{contents(found, lambda r: r['contents'])}\n\n{latencies(found)}\n\n![What flash held, what was written and read](img/classes-{kind}.svg)"
    return text + table(head, rows) + picture


def latencies(found):
    """The 95th percentiles of the times of whole files, by file size."""
    sizes = sorted({int(k.split()[1]) for _, r in found for k in r["p95_s"]})
    cell = lambda r, what, s: f"{1000 * r['p95_s'][f'{what} {s}']:.1f}" if f"{what} {s}" in r["p95_s"] else "–"
    rows = [[f"{s} KiB", *(cell(r, what, s) for what in ("read", "write") for _, r in found)] for s in sizes]
    return table(["95 % under, ms", *(f"{what}, {NAMES[p]}" for what in ("read", "write") for p, _ in found)], rows)


def bars(found, of):
    """Stacked bars: flash, written and read for each policy (DSS' figures 2 and 5). SVG."""
    columns = []
    for policy, r in found:
        sums = of(r)
        for what in ("flash", "written", "read"):
            if sums.get(what) and not (policy == "none" and what == "flash"):
                columns.append((NAMES[policy], what, shares(sums[what])))
    width, height, left, top = 40, 220, 40, 16
    out, x, before = [], left, None
    for name, what, parts in columns:
        if name != before:
            x += 16 if before else 0
            out.append(f'<text x="{x}" y="{top + height + 34}" font-size="12">{name}</text>')
            before = name
        y = top + height
        for group, share in parts.items():
            y -= share * height
            out.append(f'<rect x="{x}" y="{y:.1f}" width="{width - 6}" height="{share * height:.1f}" fill="{GROUPS[group]}"><title>{group} {percent(share)}</title></rect>')
        out.append(f'<text x="{x}" y="{top + height + 16}" font-size="10">{what}</text>')
        x += width
    used = [g for g in GROUPS if any(g in parts for _, _, parts in columns)]
    for i, group in enumerate(used):
        y = top + 10 + i * 18
        out.append(f'<rect x="{x + 20}" y="{y}" width="12" height="12" fill="{GROUPS[group]}"/><text x="{x + 38}" y="{y + 10}" font-size="12">{group}</text>')
    for tick in (0, 50, 100):
        y = top + height - tick / 100 * height
        out.append(f'<text x="4" y="{y + 4:.0f}" font-size="10">{tick} %</text>')
    body = "\n".join(out)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{x + 160}" height="{top + height + 44}" font-family="sans-serif" role="img">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def of_tpch(r):
    total = lambda key: {g: sum(x[key].get(g, 0) for x in r["runs"]) for g in GROUPS}
    return {"flash": {g: v[0] for g, v in r["contents"].items()}, "written": total("bytes_written"), "read": total("bytes_read")}


def of_dss(r):
    return {"flash": {g: v[0] for g, v in r["contents"].items()}, "written": r["bytes_written"], "read": r["bytes_read"]}


def main():
    results = json.loads(RESULTS.read_text())
    parts, pictures = {}, {}
    if any(k.startswith("tpch ") for k in results):
        parts["tpch"] = tpch(results)
        pictures["classes-tpch.svg"] = bars([(p, results[f"tpch {p}"]) for p in ORDER if f"tpch {p}" in results], of_tpch)
    for kind in ("file", "email"):
        found = [(p, results[f"{kind} {p}"]) for p in ORDER if f"{kind} {p}" in results]
        if found:
            parts[kind] = dss(results, kind)
            pictures[f"classes-{kind}.svg"] = bars(found, of_dss)
        labels = sorted({k.split(" ", 2)[2] for k in results if k.startswith(kind + " ") and k.count(" ") > 1})
        for label in labels:
            parts[f"{kind} {label}"] = dss(results, kind, label)
    page = PAGE.read_text()
    for name, text in parts.items():
        begin, end = f"<!-- {name}: written by bench/classes/tables.py -->", f"<!-- end of {name} -->"
        if begin not in page or end not in page:
            sys.exit(f"docs/classes-live.md has no place for `{name}`")
        head, rest = page.split(begin, 1)
        page = f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end, 1)[1]}"
    files = {PAGE: page} | {IMAGES / name: text for name, text in pictures.items()}
    if sys.argv[1:] == ["--check"]:
        stale = [str(p.relative_to(ROOT)) for p, text in files.items() if not p.exists() or p.read_text() != text]
        if stale:
            sys.exit(f"{', '.join(stale)}: not what bench/classes/results.json says; run bench/classes/tables.py")
        return
    for path, text in files.items():
        path.write_text(text)


main()
