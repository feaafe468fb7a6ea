"""Prints the medians of the results of bench/files/run.sh as a table for docs/performance.md. Usage: table.py RESULTS"""

import json
import statistics
import sys

found = {}
for line in open(sys.argv[1]):
    entry = json.loads(line)
    kind = entry["kind"].replace("_", " ")
    value = entry["value"] / (1e6 if kind.endswith("MB/s") else 1)
    found.setdefault(kind, {}).setdefault(entry["what"], []).append(value)
peers = ["native", "isotherm", "isotherm-passthrough", "mergerfs"]
print("| | " + " | ".join(peers) + " |")
print("|---" * (len(peers) + 1) + "|")
for kind, of in found.items():
    cells = ["%.0f" % statistics.median(of[p]) if p in of else "" for p in peers]
    print("| " + kind + " | " + " | ".join(cells) + " |")
