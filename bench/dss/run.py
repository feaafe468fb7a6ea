#!/usr/bin/env python3
"""Differentiated Storage Services 5.4 to 5.6, scaled down, on live volumes: none / LRU / LRU-S.

    sudo bench/dss/run.py target/release/isotherm [--work file,email] [--policies none,dss-lru,dss-lru-s]
                          [--files 1200] [--transactions 1200] [--extent 4K] [--mib 1600] [--memory 48] [--seed 1]

Each volume is an ext3 on a loop device over the block file; disk and flash are paced by their models (wd5000aaks,
intel-x25e-32), the volume spread over the whole disk, so times are those of the paper's kinds of device, whatever the machine has. The load runs in a control group
of --memory MiB, so that pages, inodes and buffers do not all stay in memory (the paper: 8 GB beside 184). Sizes are those of
Table 8; two reads to a write, files as a whole; then find, tar and fsck. Prints files a second, time of each utility, hit
ratio, and the ratios to LRU; with classes what the layout said. Needs root, cgroup v1 memory, e2fsprogs, losetup, fusermount3.
"""
import argparse, json, os, random, re, shutil, subprocess, sys, tempfile, time

K = 1024
SIZES = {  # Table 8
    "file": [(1, 17), (2, 16), (4, 16), (8, 7), (16, 7), (32, 9), (64, 7), (128, 5), (256, 5), (512, 4), (1024, 3),
             (2048, 2), (8192, 1), (32768, 1)],
    "email": [(2, 24), (4, 26), (8, 18), (16, 12), (32, 6), (64, 5), (128, 3), (256, 2), (512, 2), (1024, 1), (10240, 1)],
}
GROUP = "/sys/fs/cgroup/memory/isotherm-dss"


def run(*args, **kw):
    return subprocess.run([str(a) for a in args], check=True, capture_output=True, text=True, **kw).stdout


def wait_for(what, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        if what():
            return
        time.sleep(0.05)
    sys.exit("gave up waiting")


def load(args):
    """The load itself, in its control group: pool or transactions, one JSON line."""
    pool, kind, seed, n, files, phase = args
    rng = random.Random(int(seed))
    weights = SIZES[kind]
    choose = lambda: rng.choices([s for s, _ in weights], [w for _, w in weights])[0] * K
    n, files = int(n), int(files)
    dirs = max(1, files // 30)
    name = lambda i: f"{pool}/d{i % dirs}/f{i}"
    data = os.urandom(1 << 20)
    spent = {}

    def write(i):
        size, path = choose(), name(i)
        t = time.monotonic()
        with open(path, "wb", buffering=0) as f:
            left = size
            while left > 0:
                left -= f.write(data[:min(left, 1 << 20 if kind == "file" else 4096)])
        spent.setdefault(size, []).append(time.monotonic() - t)

    def read(i):
        t = time.monotonic()
        size = 0
        with open(name(i), "rb", buffering=0) as f:
            while True:
                got = len(f.read(1 << 17 if kind == "file" else 4096))
                if not got:
                    break
                size += got
        spent.setdefault(size, []).append(time.monotonic() - t)

    begun = time.monotonic()
    if phase == "pool":
        for d in range(dirs):
            os.makedirs(f"{pool}/d{d}", exist_ok=True)
        for i in range(files):
            write(i)
    else:
        rng = random.Random(int(seed) + 1)
        made = files
        for _ in range(n):
            if rng.random() < 2 / 3:
                read(rng.randrange(made))
            else:
                write(made)
                made += 1
    run("sync", "-f", pool)
    took = time.monotonic() - begun
    p95 = {str(s): sorted(v)[int(len(v) * 0.95)] for s, v in sorted(spent.items())}
    print(json.dumps({"seconds": took, "p95_s": p95}))


class Volume:
    def __init__(self, isotherm, place, policy, opts):
        self.isotherm, self.place = isotherm, place
        members = f'[[members]]\npath = "slow"\ntier = {int(policy != "none")}\nsize = "{opts.mib}M"\npaced = "wd5000aaks"\n'
        if policy != "none":
            fast = f'[[members]]\npath = "fast"\ntier = 0\nsize = "{opts.mib // 10}M"\npaced = "intel-x25e-32"\n'
            members = fast + members
        name = "linear" if policy == "none" else policy
        with open(f"{place}/new.toml", "w") as f:
            f.write(f'name = "v"\nextent = "{opts.extent}"\npolicy = "{name}"\n[io]\nbuffers = "16M"\nmove_buffers = 128\n{members}')
        run(isotherm, "create", "v", "--config", "new.toml", cwd=place)
        os.mkdir(f"{place}/mnt")
        self.server = subprocess.Popen([isotherm, "serve", "v", "--block-file", "mnt"], cwd=place, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
        if self.server.stdout.readline() != "ready\n":
            sys.exit("not served")
        self.loop = run("losetup", "--direct-io=on", "-f", "--show", f"{place}/mnt/v").strip()
        self.dir = f"{place}/fs"
        os.mkdir(self.dir)
        run("mkfs.ext3", "-q", "-F", "-I", "128", self.loop)

    def mount(self):
        run("mount", "-o", "noatime", self.loop, self.dir)

    def unmount(self):
        for _ in range(50):
            if subprocess.run(["umount", self.dir], capture_output=True).returncode == 0:
                break
            time.sleep(0.2)
        run("blockdev", "--flushbufs", self.loop)

    def json(self, *words):
        return json.loads(run(self.isotherm, *words, "--json", cwd=self.place))

    def close(self):
        subprocess.run(["umount", self.dir], capture_output=True)
        subprocess.run(["losetup", "-d", self.loop], capture_output=True)
        time.sleep(0.3)
        subprocess.run([self.isotherm, "stop", "v"], cwd=self.place, capture_output=True)
        try:
            self.server.wait(120)
        except subprocess.TimeoutExpired:
            self.server.kill()


def in_group(*args):
    words = ["sh", "-c", f'echo $$ > {GROUP}/cgroup.procs && exec "$@"', "sh", *map(str, args)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def one(isotherm, policy, kind, opts):
    place = tempfile.mkdtemp(dir=opts.dir)
    volume = Volume(isotherm, place, policy, opts)
    try:
        volume.mount()
        pool = f"{volume.dir}/pool"
        os.mkdir(pool)
        me = [sys.executable, os.path.abspath(__file__), "--load"]
        in_group(*me, pool, kind, opts.seed, 0, opts.files, "pool")
        # As the paper: a pool made before, then the transactions. Unmounting puts metadata in its place.
        volume.unmount()
        volume.mount()
        before = volume.json("stats", "v")
        out = json.loads(in_group(*me, pool, kind, opts.seed, opts.transactions, opts.files, "work"))
        after = volume.json("stats", "v")
        result = {"files_per_s": opts.transactions / out["seconds"], "p95_s": out["p95_s"]}
        hits = lambda s: s["tiers"][0]["hits"]
        if policy != "none":
            result["hit_ratio"] = (hits(after) - hits(before)) / max(1, after["accesses"] - before["accesses"])
        for name, words in [("find", ["find", pool, "-name", "nobody-has-this-name"]),
                            ("tar", ["sh", "-c", f"tar cf - {pool} | cat >/dev/null"])]:
            volume.unmount()
            volume.mount()
            t = time.monotonic()
            in_group(*words)
            result[name + "_s"] = time.monotonic() - t
        volume.unmount()
        t = time.monotonic()
        checked = subprocess.run(["fsck.ext3", "-f", "-n", volume.loop], capture_output=True, text=True)
        result["fsck_s"] = time.monotonic() - t
        if checked.returncode != 0:
            sys.exit(f"fsck: {checked.stdout}")
        show = volume.json("classes", "show", "v")
        result["by_class"] = {r["name"]: {k: r.get(k) for k in ("requests", "fast_hit_ratio", "fast_bytes", "volume_bytes")}
                              for r in show["by_class"].values()}
        result["unclassified_requests"] = show["unclassified_requests"]
        result["mixed_requests"] = show["mixed_requests"]
        return result
    finally:
        volume.close()
        shutil.rmtree(place, ignore_errors=True)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--load":
        return load(sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("isotherm")
    p.add_argument("--work", default="file,email")
    p.add_argument("--policies", default="none,dss-lru,dss-lru-s")
    p.add_argument("--files", type=int, default=1200)
    p.add_argument("--transactions", type=int, default=1200)
    p.add_argument("--extent", default="4K")
    p.add_argument("--mib", type=int, default=1600)
    p.add_argument("--memory", type=int, default=48)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--dir", default="/dev/shm")
    p.add_argument("--json")
    opts = p.parse_args()
    isotherm = os.path.abspath(opts.isotherm)
    os.makedirs(GROUP, exist_ok=True)
    open(f"{GROUP}/memory.limit_in_bytes", "w").write(f"{opts.memory}M")
    all_results = {}
    print(f"machine: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; extent {opts.extent}, {opts.mib} MiB disk, "
          f"{opts.mib // 10} MiB flash, {opts.memory} MiB of memory for the load")
    keys = ["files_per_s", "find_s", "tar_s", "fsck_s", "hit_ratio"]
    for kind in opts.work.split(","):
        print(f"\n{kind} server: {opts.files} files, {opts.transactions} transactions")
        print(f"{'policy':<12}" + "".join(f"{k:>13}" for k in keys))
        results = {}
        for policy in opts.policies.split(","):
            results[policy] = r = one(isotherm, policy, kind, opts)
            print(f"{policy:<12}" + "".join(f"{r[k]:13.3f}" if k in r else f"{'-':>13}" for k in keys), flush=True)
        if "dss-lru" in results and "dss-lru-s" in results:
            a, b = results["dss-lru"], results["dss-lru-s"]
            ratio = {k: (b[k] / a[k] if k == "files_per_s" else a[k] / b[k]) for k in keys[:4]}
            print("LRU-S to LRU" + "".join(f"{ratio[k]:12.2f}x" for k in keys[:4]))
        all_results[kind] = results
    if opts.json:
        json.dump(all_results, open(opts.json, "w"), indent=1)
    try:
        os.rmdir(GROUP)
    except OSError:
        pass


main()
