"""Shared by the programs in this directory: runs of isotherm, the list of traces, means, and the places of tables in the page."""

import json
import math
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ISOTHERM = os.environ.get("ISOTHERM", str(ROOT / "target/release/isotherm"))
TRACES = pathlib.Path(os.environ.get("ISOTHERM_TRACES", ROOT / "fixtures"))
PAGE = ROOT / "docs/policies-compared.md"

TUNE = ["linux-mysql.load.zst", "linux-webserver-2.load.zst", "cloudphysics-io.vscsi.zst", "msr-web_0-head65k.csv.zst",
        "dtrs-0-200s.trace.zst", "hplajw-1week.csv.zst", "msr-rsrch_1.csv.zst"]
REPORT = ["websearch-0-40s.spc.zst", "financial1-head10k.spc.zst", "tencent-cbs-sample50k.csv.zst", "linux-sample.blktrace.0.zst",
          "windows-shared-server.load.zst", "msr-wdev_1.csv.zst", "fiu-mail-head7k.blkparse.zst", "systor17-sample1k.csv.zst"]
PAIRS = [("sata-enterprise", "exos-18tb"), ("nvme-tlc", "smr-8tb"), ("intel-x25e-32", "wd5000aaks")]


def isotherm(*words):
    done = subprocess.run([ISOTHERM, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"isotherm {' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def mean(xs):
    """The geometric mean of the values above zero."""
    xs = [x for x in xs if x > 0]
    return math.exp(sum(map(math.log, xs)) / len(xs)) if xs else float("nan")


# The requested traces that are missing.
SKIPPED = []


def found(files):
    """The traces that exist. The names of the missing ones are printed."""
    for file in files:
        path = TRACES / file
        if path.exists():
            yield path
        else:
            SKIPPED.append(file)
            print(f"{file} is skipped: not in ISOTHERM_TRACES", file=sys.stderr)


def put(name, lines):
    """Replaces the lines between the two marks of this name in the page. Refuses if traces were skipped."""
    if SKIPPED:
        sys.exit(f"{PAGE.name} is left as it is: the table lacks {len(SKIPPED)} traces (ISOTHERM_TRACES)")
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text = PAGE.read_text(encoding="utf-8")
    if begin not in text or end not in text:
        sys.exit(f"{PAGE}: no marks {begin} and {end}")
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    PAGE.write_text(before + begin + "\n\n" + "\n".join(lines) + "\n\n" + end + after, encoding="utf-8")
