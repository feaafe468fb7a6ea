#!/usr/bin/env python3
"""The verdicts at the end of docs/reproduce*.md, from a run of everything:

    ISOTHERM_TRACES=DIR isotherm reproduce all --json=run.json && bench/reproduce/tables.py run.json

Standard library only. What stands before the heading "## Verdicts" is written by hand and left alone.
"""

import json
import pathlib
import sys

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGES = {"greendm": "reproduce.md", "oodt": "reproduce-oodt.md", "loris": "reproduce-loris.md",
         "hro": "reproduce-hro.md", "dss": "reproduce-dss.md"}
VERDICTS = {"holds": "holds", "does-not-hold": "**does not**", "cannot-be-judged": "cannot be judged"}


def cell(text):
    return text.replace("|", "\\|").replace("*", "\\*").replace("\n", " ")


def page(outcomes, seconds):
    count = lambda claims, v: sum(c["verdict"] == v for c in claims)
    claims = [c for o in outcomes for c in o["claims"]]
    n = [count(claims, v) for v in VERDICTS]
    lines = ["## Verdicts of the last run", "",
             f"`isotherm reproduce all`, usual scales, seed {outcomes[0]['seed']}, {seconds:.0f} s for these on two cores: "
             f"{n[0]} claims hold, {n[1]} do not, {n[2]} cannot be judged. `*`: arithmetic. "
             "One run, one seed; made by `bench/reproduce/tables.py`.", "",
             "| experiment | scale | holds | does not | cannot be judged |", "|---|---|--:|--:|--:|"]
    for o in outcomes:
        scale = "–" if o.get("scale") is None else o["scale"]
        lines.append(f"| `{o['id']}` {cell(o['title'])} | {scale} | " + " | ".join(str(count(o["claims"], v)) for v in VERDICTS) + " |")
    lines += ["", "| experiment | claim | verdict | figures |", "|---|---|---|---|"]
    for o in outcomes:
        for c in o["claims"]:
            star = "\\* " if c["exact"] else ""
            lines.append(f"| `{o['id']}` | {star}{cell(c['text'])} | {VERDICTS[c['verdict']]} | {cell(c['why'])} |")
    return "\n".join(lines) + "\n"


def main():
    data = json.loads(pathlib.Path(sys.argv[1]).read_text())
    every = data if isinstance(data, list) else next(v for v in data.values() if isinstance(v, list))
    for paper, name in PAGES.items():
        mine = [o for o in every if o["id"].startswith(paper + "-")]
        path = DOCS / name
        by_hand = path.read_text().split("\n## Verdicts")[0].rstrip() + "\n\n"
        path.write_text(by_hand + page(mine, sum(o["wall_s"] for o in mine)))


main()
