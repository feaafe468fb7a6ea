"""Measures operations on names per second in a directory: create, look up, open, look up a missing name, list with attributes, remove.
With --make N DIRECTORY it makes N idle files instead."""

import os
import sys
import time

COUNT = 3000


def rates(top):
    path = top + "/names"
    os.mkdir(path)
    names = ["%s/f%d" % (path, i) for i in range(COUNT)]

    def miss(name):
        try:
            os.stat(name + "x")
        except FileNotFoundError:
            pass

    steps = [
        ("creates/s", lambda p: os.close(os.open(p, os.O_CREAT | os.O_WRONLY, 0o644))),
        ("stats/s", os.stat),
        ("opens/s", lambda p: os.close(os.open(p, os.O_RDONLY))),
        ("misses/s", miss),
        ("misses/s again", miss),
        ("unlinks/s", os.unlink),
    ]
    for kind, call in steps:
        start = time.monotonic()
        for name in names:
            call(name)
        print(kind.replace(" ", "_"), round(COUNT / (time.monotonic() - start)))
    os.rmdir(path)


def make(count, top):
    for i in range(0, count, 1000):
        os.mkdir("%s/d%d" % (top, i))
        for n in range(i, min(i + 1000, count)):
            os.close(os.open("%s/d%d/some-file-%d.txt" % (top, i, n), os.O_CREAT | os.O_WRONLY, 0o644))


if sys.argv[1] == "--make":
    make(int(sys.argv[2]), sys.argv[3])
else:
    rates(sys.argv[1])
