"""A live volume of paced devices with a file system on it, for the experiments of Differentiated Storage Services beside this file.

Disk and flash are paced by their models, and the volume is spread over the whole disk. So times are those of devices like the paper's, on
every machine. A load runs in a control group with limited memory, so that not everything stays in the page cache (the paper had 8 GB of
memory for 184 GB of files). Needs root, cgroup v1 memory, e2fsprogs, losetup, FUSE.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

DISK, FLASH = "wd5000aaks", "intel-x25e-32"
# MiB of the first member that a small volume takes for its own metadata.
OWN_MIB = 18
# The groups of classes that the tables show.
GROUPS = [
    ("metadata", range(1, 7)),
    ("journal", range(7, 8)),
    ("files to 64 KiB", range(8, 11)),
    ("files to 1 MiB", range(11, 13)),
    ("larger files", range(13, 19)),
    ("log", range(19, 20)),
    ("system tables", range(20, 22)),
    ("temporary tables", range(22, 23)),
    ("user tables", range(23, 25)),
    ("indexes", range(25, 26)),
    ("unclassified", [0, *range(26, 64)]),
]


def run(*args, **kw):
    """Standard output of a command that must succeed."""
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, **kw)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, args))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Group:
    """A control group with this amount of memory in MiB, including the page cache."""

    def __init__(self, name, mib):
        self.place = f"/sys/fs/cgroup/memory/{name}"
        os.makedirs(self.place, exist_ok=True)
        with open(f"{self.place}/memory.limit_in_bytes", "w") as f:
            f.write(f"{mib}M")
        # If much dirty data waits for a slow disk, processes that need memory wait as well, and are not killed.
        with open(f"{self.place}/memory.oom_control", "w") as f:
            f.write("1")

    def inside(self, *args, **kw):
        """Runs a command in the group."""
        return run("sh", "-c", f'echo $$ > {self.place}/cgroup.procs && exec "$@"', "sh", *args, **kw)

    def close(self):
        for _ in range(20):
            try:
                return os.rmdir(self.place)
            except OSError:
                time.sleep(0.1)


class Volume:
    """A volume `v` in the folder `place` with a file system that is mounted at `fs` below it. `policy` None: the disk alone."""

    def __init__(self, isotherm, place, policy, *, mib, flash_mib, extent, mkfs, mount="noatime"):
        self.isotherm, self.place, self.options = isotherm, place, mount
        members = f'[[members]]\npath = "slow"\ntier = {int(policy is not None)}\nsize = "{mib}M"\npaced = "{DISK}"\n'
        if policy is not None:
            members = f'[[members]]\npath = "fast"\ntier = 0\nsize = "{flash_mib}M"\npaced = "{FLASH}"\n' + members
        with open(f"{place}/new.toml", "w") as f:
            f.write(f'name = "v"\nextent = "{extent}"\npolicy = "{policy or "linear"}"\n')
            f.write(f'[io]\nbuffers = "16M"\nmove_buffers = 128\n{members}')
        run(isotherm, "create", "v", "--config", "new.toml", cwd=place)
        os.mkdir(f"{place}/mnt")
        self.loop = None
        log = open(f"{place}/served", "w")
        self.server = subprocess.Popen([isotherm, "serve", "v", "--block-file", "mnt"], cwd=place, stdout=subprocess.PIPE, stderr=log, text=True)
        if self.server.stdout.readline() != "ready\n":
            sys.exit(f"not served: {open(f'{place}/served').read()}")
        self.loop = run("losetup", "--direct-io=on", "-f", "--show", f"{place}/mnt/v").strip()
        self.fs = f"{place}/fs"
        os.mkdir(self.fs)
        run(*mkfs, self.loop)
        self.mount()

    def mount(self):
        run("mount", "-o", self.options, self.loop, self.fs)

    def unmount(self):
        for _ in range(50):
            if subprocess.run(["umount", self.fs], capture_output=True).returncode == 0:
                break
            time.sleep(0.2)
        else:
            sys.exit(f"{self.fs} stays busy")
        run("blockdev", "--flushbufs", self.loop)

    def json(self, *words):
        return json.loads(run(self.isotherm, *words, "--json", cwd=self.place))

    def known(self):
        """Waits until the classes of all written data are known, at most ten seconds."""
        end, before = time.monotonic() + 10, None
        while time.monotonic() < end:
            time.sleep(1)
            now = {k: v[1] for k, v in self.contents().items()}
            if now == before:
                return
            before = now

    def counters(self):
        """The counters that `Measured` compares."""
        return self.json("stats", "v")

    def contents(self):
        """The bytes on flash and in the volume, by group of classes."""
        rows = self.json("classes", "show", "v")["by_class"]
        of = lambda key, classes: sum(rows[str(c)].get(key) or 0 for c in classes if str(c) in rows)
        return {name: [of("fast_bytes", classes), of("volume_bytes", classes)] for name, classes in GROUPS}

    def close(self):
        if self.loop:
            subprocess.run(["umount", "-f", f"{self.place}/fs"], capture_output=True)
            subprocess.run(["losetup", "-d", self.loop], capture_output=True)
        time.sleep(0.3)
        subprocess.run([self.isotherm, "stop", "v"], cwd=self.place, capture_output=True)
        try:
            self.server.wait(120)
        except subprocess.TimeoutExpired:
            self.server.kill()


class Recorder:
    """Records the requests of a volume in the body of `with` as a trace in FILE. Does nothing if FILE is None."""

    def __init__(self, v, file):
        self.v, self.file = v, file

    def __enter__(self):
        if self.file:
            words = [self.v.isotherm, "record", "v", "--out", os.path.abspath(self.file)]
            end = time.monotonic() + 5
            while not self.begins(words):
                # The server may not have noticed yet that the recorder before this one has ended.
                if "already" not in self.said or time.monotonic() > end:
                    sys.exit(f"{self.file}: nothing is recorded: {self.said.strip()}")
                time.sleep(0.1)

    def begins(self, words):
        """Starts the recorder. Returns whether it records; if it does not, `said` has the reason."""
        self.process = subprocess.Popen(words, cwd=self.v.place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.said = ""
        for line in self.process.stderr:
            if line.startswith("isotherm: recording "):
                return True
            self.said += line
        self.process.wait()
        return False

    def __exit__(self, *_):
        if self.file:
            self.process.send_signal(signal.SIGINT)
            said = self.process.stderr.read()
            code = self.process.wait()
            if code != 0 or not os.path.exists(self.file):
                sys.exit(f"{self.file}: not recorded, exit code {code}: {said.strip()}")


class Pictures(threading.Thread):
    """Records the contents of flash at regular intervals until it is stopped (DSS' figures 2 and 5 over time)."""

    def __init__(self, volume, every=2.0):
        super().__init__(daemon=True)
        self.volume, self.every, self.points, self.over = volume, every, [], threading.Event()
        self.begun = time.monotonic()
        self.start()

    def run(self):
        while not self.over.wait(self.every):
            fast = {name: pair[0] for name, pair in self.volume.contents().items() if pair[0]}
            self.points.append([round(time.monotonic() - self.begun, 1), fast])

    def stop(self):
        self.over.set()
        self.join()
        return self.points


def measured(before, after):
    """Read hits, the syncer's share, and traffic by group of classes, between two results of `counters`. Shares are in per cent."""
    classes = sorted(set(before["by_class"]) | set(after["by_class"]), key=int)
    zero = {}
    change = lambda key, c: (after["by_class"].get(c, zero).get(key) or 0) - (before["by_class"].get(c, zero).get(key) or 0)
    by = lambda key: {name: sum(change(key, c) for c in classes if int(c) in group) for name, group in GROUPS}
    total = lambda key: after[key] - before[key]
    cleaned = 2 * total("written_back_bytes")
    moved = cleaned + total("bytes_read") + total("bytes_written")
    return {
        "accesses": total("accesses"),
        "hits": after["tiers"][0]["hits"] - before["tiers"][0]["hits"],
        "hit_ratio": (after["tiers"][0]["hits"] - before["tiers"][0]["hits"]) / max(1, total("accesses")),
        "cleaning_share": cleaned / max(1, moved),
        "bytes_read": {k: v for k, v in by("bytes_read").items() if v},
        "bytes_written": {k: v for k, v in by("bytes_written").items() if v},
        "accesses_by": {k: v for k, v in by("accesses").items() if v},
        "hits_by": {k: v for k, v in by("fast_hits").items() if v},
        "flushes": total("flushes"),
    }


def machine():
    """The machine and its load in one line."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), os.uname().machine)
    return f"{cpu}, {os.cpu_count()} cores, Linux {os.uname().release.split('-')[0]}"


def keep(path, key, value):
    """Writes one result to a file of results, which has one line for each."""
    results = json.load(open(path)) if os.path.exists(path) else {}
    results[key] = value
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(results[k])}" for k in sorted(results))
    with open(path + ".new", "w") as f:
        f.write("{\n" + lines + "\n}\n")
    os.replace(path + ".new", path)
