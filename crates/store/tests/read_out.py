#!/usr/bin/env python3
"""read_out.py DIRECTORY IMAGE: writes the newest state of a disk to a file, from docs/object-store-format.md alone."""
import json, pathlib, struct, sys, zlib

store, image = pathlib.Path(sys.argv[1]), sys.argv[2]
BLOCK, GROUP = 4096, 64


def part(ref):
    content = (store / ref["name"]).read_bytes()
    assert zlib.crc32(content) == ref["crc"], ref["name"]
    return content.decode()


def block(name, number, last):
    group, within = divmod(number, GROUP)
    inside = min(GROUP, last - group * GROUP)
    with open(store / name, "rb") as f:
        f.seek(group * GROUP * (BLOCK + 4))
        whole = f.read(inside * (BLOCK + 4))
    data = whole[within * BLOCK:][:BLOCK]
    crc, = struct.unpack_from("<I", whole, inside * BLOCK + within * 4)
    assert zlib.crc32(name.encode() + data) == crc, (name, number)
    return data


size = json.loads((store / "isotherm-store.json").read_text())["bytes"]
text, crc = max((store / "manifest").iterdir()).read_text().rsplit("\ncrc32 ", 1)
assert zlib.crc32(text.encode()) == int(crc, 16)
manifest, places = json.loads(text), {}
segments = json.loads(part(manifest["index"])) if manifest["index"] else []
for ref in segments + manifest["deltas"]:
    objects = []
    for line in part(ref).splitlines()[1:]:
        kind, *words = line.split(" ")
        if kind == "o":
            objects.append((words[0], int(words[1])))
            continue
        start, blocks, *where = map(int, words)
        for i in range(blocks):
            places[start + i] = (*objects[where[0]], where[1] + i) if kind == "e" else None
with open(image, "wb") as out:
    out.truncate(size)
    for at, place in places.items():
        if place:
            out.seek(at * BLOCK)
            out.write(block(place[0], place[2], place[1]))
