#!/usr/bin/env python3
"""The verdicts of docs/reproduce*.md, from runs of `isotherm reproduce`.

    isotherm reproduce all --seeds 5 --json=run.json
    bench/reproduce/tables.py run.json     takes the run into results.json and writes the pages
    bench/reproduce/tables.py              writes the pages from results.json
    bench/reproduce/tables.py --check      fails if a page differs from results.json

A run of some experiments replaces only their verdicts. Standard library only. The text before the heading "## Verdicts" is
written by hand and does not change.
"""

import json
import pathlib
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
RESULTS = HERE / "results.json"
PAGES = {"greendm": "reproduce.md", "oodt": "reproduce-oodt.md", "loris": "reproduce-loris.md",
         "hro": "reproduce-hro.md", "dss": "reproduce-dss.md"}
VERDICTS = {"holds": "holds", "near": "near", "direction": "direction", "does-not-hold": "**does not**",
            "cannot-be-judged": "cannot be judged", "fitted": "fitted", "vacuous": "vacuous"}
ENOUGH = 5


def cell(text):
    return text.replace("|", "\\|").replace("*", "\\*").replace("\n", " ")


def listed(words, ids):
    """A sentence that ends with these identifiers, in lines of 120 columns. Identifiers are not split."""
    text = words + " " + ", ".join(f"`{i}`" for i in ids) + "."
    return textwrap.wrap(text, 120, break_on_hyphens=False, break_long_words=False)


def kept(outcome):
    """The part of an experiment's result that results.json keeps."""
    claims = [{k: c[k] for k in ("key", "text", "exact", "verdict", "figures")} for c in outcome["claims"]]
    return {"id": outcome["id"], "title": outcome["title"], "scale": outcome["scale"], "seeds": outcome["seeds"],
            "wall_s": round(outcome["wall_s"], 1), "claims": claims}


def row(outcome, claim):
    star = "\\* " if claim["exact"] else ""
    return f"| `{outcome['id']}` | {star}{cell(claim['text'])} | {VERDICTS[claim['verdict']]} | {cell(claim['figures'])} |"


def seeds(outcome):
    if all(c["exact"] for c in outcome["claims"]):
        return "–"
    n = len(outcome["seeds"])
    return str(n) if n >= ENOUGH else f"**{n}**"


def page(outcomes, missing):
    count = lambda claims, v: sum(c["verdict"] == v for c in claims)
    claims = [c for o in outcomes for c in o["claims"]]
    n = {v: count(claims, v) for v in VERDICTS}
    few = [o["id"] for o in outcomes if seeds(o).startswith("**")]
    lines = ["## Verdicts of the last run", "",
             f"Usual scales: {n['holds']} claims hold, {n['near']} are near, of {n['direction']} only the direction is right, "
             f"{n['does-not-hold']} do not hold,",
             f"{n['cannot-be-judged']} cannot be judged; not counted: {n['fitted']} fitted, {n['vacuous']} vacuous. `*`: arithmetic. "
             "Made by `bench/reproduce/tables.py`.", ""]
    if few:
        lines += [*listed(f"**With fewer than {ENOUGH} seeds**, so not settled:", few), ""]
    if missing:
        lines += [*listed("**Not run since models and judging changed:**", missing), ""]
    lines += ["| experiment | scale | seeds | " + " | ".join(v.strip("*") for v in VERDICTS.values()) + " |",
              "|---|---|--:|" + "--:|" * len(VERDICTS)]
    for o in outcomes:
        scale = "–" if o["scale"] is None else o["scale"]
        lines.append(f"| `{o['id']}` {cell(o['title'])} | {scale} | {seeds(o)} | "
                     + " | ".join(str(count(o["claims"], v)) for v in VERDICTS) + " |")
    lines += ["", "| experiment | claim | verdict | figures |", "|---|---|---|---|"]
    lines += [row(o, c) for o in outcomes for c in o["claims"]]
    return "\n".join(lines) + "\n"


def merge(results, run):
    """Replaces the experiments of the same names by those of the run, in the order of the first complete run."""
    new = {o["id"]: kept(o) for o in run["experiments"]}
    out = [new.pop(o["id"], o) for o in results]
    return out + list(new.values())


def main():
    check = "--check" in sys.argv[1:]
    runs = [a for a in sys.argv[1:] if a != "--check"]
    data = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"experiments": [], "not_run": []}
    results = data["experiments"]
    for run in runs:
        results = merge(results, json.loads(pathlib.Path(run).read_text()))
    missing = [i for i in data["not_run"] if all(o["id"] != i for o in results)]
    if runs and not check:
        kept_now = {"not_run": missing, "experiments": results}
        RESULTS.write_text(json.dumps(kept_now, indent=1, ensure_ascii=False) + "\n")
    differ = []
    for paper, name in PAGES.items():
        path = DOCS / name
        old = path.read_text()
        by_hand = old.split("\n## Verdicts of the last run")[0].rstrip() + "\n\n"
        of = lambda i: i.startswith(paper + "-")
        new = by_hand + page([o for o in results if of(o["id"])], [i for i in missing if of(i)])
        if check and new != old:
            differ.append(name)
        elif not check:
            path.write_text(new)
    if differ:
        sys.exit(f"{', '.join(differ)}: not what results.json says; run bench/reproduce/tables.py")


main()
