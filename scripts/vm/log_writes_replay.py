"""On the host: replays the two logs up to each cut, lets a power loss take what was not flushed, and looks at what is left.

The log format is dm-log-writes': a superblock (magic, version, number of entries, sector size), then per entry one sector
with its head (sector, sectors, flags, bytes of mark) and the data. A member after the cut holds every write that one of
isotherm's own FLUSHes on that member covered, every FUA write, and any of the others: none, all, or a random part of them.
The FLUSH between the marks `cut-N` and `end-N` is the test's and covers nothing (see log_writes_guest.py).

Usage: log_writes_replay.py ISOTHERM DIR SEED. DIR has fast.log, slow.log, v.toml, durable-N, issued-N. Exits 1 at a difference.
"""

import array
import os
import random
import re
import signal
import struct
import subprocess
import sys

from nbd import BLOCK, READ, Nbd, version_of

MAGIC = 0x6A736677736872
F_FLUSH, F_FUA, F_DISCARD, F_MARK = 1, 2, 4, 8
SECTOR = 512
CHUNK = 1 << 20


class Damage(Exception):
    """Something flushed is gone, or something never written is there."""


def entries(path):
    """The entries of a log in order: (flags, byte offset on the member, bytes of data, place of the data, mark)."""
    with open(path, "rb") as log:
        magic, version, count, unit = struct.unpack("<QQQI", log.read(28))
        if magic != MAGIC or version != 1 or unit % SECTOR:
            sys.exit(f"{path}: not a dm-log-writes log of version 1")
        place = unit
        for _ in range(count):
            log.seek(place)
            head = log.read(unit)
            sector, length, flags, text = struct.unpack_from("<QQQQ", head)
            data = place + unit
            place = data if flags & F_DISCARD else data + length * unit
            yield flags, sector * unit, length * unit, data, head[32 : 32 + text].decode()


def copy(source, target):
    """Copies an image, holes as holes."""
    subprocess.run(["cp", "--sparse=always", source, target], check=True)


class Member:
    """A member as the power loss finds it: `base` is what is durable, `pending` what is not."""

    def __init__(self, folder, name, size):
        self.base, self.name = f"{folder}/{name}.base", name
        self.log = open(f"{folder}/{name}.log", "rb")
        self.entries = entries(f"{folder}/{name}.log")
        self.image = open(self.base, "w+b")
        self.image.truncate(size)
        self.pending = []
        self.flushes = self.fua = 0

    def apply(self, image, entry):
        flags, offset, length, data, _ = entry
        image.seek(offset)
        if flags & F_DISCARD:
            image.write(bytes(length))
        else:
            self.log.seek(data)
            image.write(self.log.read(length))

    def advance(self, number):
        """Reads on to the end of cut `number`."""
        ours = False
        for entry in self.entries:
            flags, offset, length, _, mark = entry
            if flags & F_MARK:
                ours = ours or mark == f"cut-{number}"
                if mark == f"end-{number}":
                    self.image.flush()
                    return
                continue
            if flags & F_FLUSH and not ours:
                self.flushes += 1
                for earlier in self.pending:
                    self.apply(self.image, earlier)
                self.pending.clear()
            if not length:
                continue
            if flags & F_FUA:
                # The log has FUA writes ahead of unflushed ones that are older. Where they overlap the order would be lost.
                if any(p[1] < offset + length and offset < p[1] + p[2] for p in self.pending):
                    sys.exit(f"{self.name}: a FUA write at byte {offset} overlaps an unflushed one: order unknown")
                self.fua += 1
                self.apply(self.image, entry)
            else:
                self.pending.append(entry)
        sys.exit(f"{self.name}.log ends before mark end-{number}")

    def crash(self, path, keep):
        """Leaves in `path` the member after a power loss that keeps those unflushed writes for which `keep()` is true."""
        copy(self.base, path)
        with open(path, "r+b") as image:
            for entry in self.pending:
                if keep():
                    self.apply(image, entry)


def look(isotherm, folder, durable, issued, read_only):
    """Checks and serves the volume in `folder`; every block must hold a version from `durable` to `issued`."""
    done = subprocess.run([isotherm, "check", "v"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Damage(f"check: status {done.returncode}: {done.stdout}{done.stderr}")
    sock = f"{folder}/sock"
    if os.path.exists(sock):
        os.unlink(sock)
    words = [isotherm, "serve", "v", "--nbd", f"unix:{sock}"] + ["--read-only"] * read_only
    with open(f"{folder}/serve.log", "w+", encoding="utf-8") as said:
        server = subprocess.Popen(words, cwd=folder, stdout=said, stderr=said)
        try:
            compare(Nbd(sock, 30), durable, issued)
            server.send_signal(signal.SIGTERM)
            if server.wait(60):
                raise Damage(f"serve ended with status {server.returncode}")
        except (OSError, Damage, subprocess.TimeoutExpired) as error:
            said.seek(0)
            raise Damage(f"{error}; serve said: {said.read()}") from error
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()


def compare(nbd, durable, issued):
    wrong = []
    for start in range(0, nbd.size, CHUNK):
        nbd.send(READ, 1, start, min(CHUNK, nbd.size - start))
        data = nbd.reply()[1]
        for at in range(0, len(data) - BLOCK + 1, BLOCK):
            b = (start + at) // BLOCK
            found = version_of(b, data[at : at + BLOCK])
            if found is None or not durable[b] <= found <= issued[b]:
                wrong.append(f"block {b}: flushed {durable[b]}, sent {issued[b]}, found {found}")
    nbd.close()
    if wrong:
        raise Damage(f"{len(wrong)} blocks differ, first " + "; ".join(wrong[:5]))


def load(path):
    values = array.array("I")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    return values


def main():
    isotherm, folder, seed = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    crash = f"{folder}/crash"
    os.makedirs(crash, exist_ok=True)
    with open(f"{folder}/v.toml", encoding="utf-8") as file:
        text = file.read()
    for name in ("fast", "slow"):
        text, changed = re.subn(rf'(?m)^path = "/dev/mapper/{name}"$', f'path = "{crash}/{name}"', text)
        if changed != 1:
            sys.exit(f"v.toml names /dev/mapper/{name} {changed} times")
    with open(f"{crash}/v.toml", "w", encoding="utf-8") as file:
        file.write(text)
    members = [Member(folder, name, os.path.getsize(f"{folder}/{name}.data")) for name in ("fast", "slow")]
    cuts = sum(name.startswith("durable-") for name in os.listdir(folder))
    if not cuts:
        sys.exit("the guest left no cut")
    points = lost = unflushed = 0
    for number in range(cuts):
        durable, issued = load(f"{folder}/durable-{number}"), load(f"{folder}/issued-{number}")
        for member in members:
            member.advance(number)
            unflushed += len(member.pending)
        if number == 0:
            for member in members:
                copy(member.base, f"{folder}/{member.name}.stale")
        share = rng.random()
        for kept, keep in (
            ("none", lambda: False),
            ("all", lambda: True),
            (f"{share:.2f}", lambda: rng.random() < share),
        ):
            for member in members:
                member.crash(f"{crash}/{member.name}", keep)
            try:
                look(isotherm, crash, durable, issued, points % 2 == 0)
            except Damage as damage:
                print(f"FAILED: seed {seed}, cut {number} of {cuts}, unflushed writes kept: {kept}: {damage}")
                lost += 1
            points += 1
    flushed = {m.name: m.flushes for m in members}
    if not all(flushed.values()):
        sys.exit(f"a member saw no FLUSH ({flushed}): nothing is proved")
    if not unflushed:
        sys.exit("no cut met an unflushed write: nothing is proved")
    # The canaries: a member on which no FLUSH after the first cut did anything must be noticed.
    for canary in members:
        for member in members:
            copy(f"{folder}/{member.name}.stale" if member is canary else member.base, f"{crash}/{member.name}")
        try:
            look(isotherm, crash, durable, issued, True)
        except Damage as damage:
            print(f"canary, FLUSH ignored on {canary.name}: noticed: {str(damage)[:200]}")
        else:
            sys.exit(f"the canary lives: FLUSH ignored on {canary.name} passes as well")
    print(
        f"vm-dm-log-writes: {points} crash points at {cuts} cuts, {lost} with differences; "
        f"FLUSHes {flushed['fast']} fast, {flushed['slow']} slow; FUA writes {members[0].fua} fast, {members[1].fua} slow; "
        f"unflushed writes at the cuts {unflushed}; seed {seed}"
    )
    sys.exit(lost > 0)


main()
