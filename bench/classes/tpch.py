#!/usr/bin/env python3
"""Differentiated Storage Services 5.7 live and scaled down: TPC-H on PostgreSQL, without flash, under LRU and under LRU-S.

    sudo bench/classes/tpch.py target/release/isotherm [--scale 0.2] [--runs 3] [--policies none,dss-lru,dss-lru-s,reversed]
                               [--memory 64] [--flash 10] [--set sync_batch=128] [--mount noatime] [--keep bench/classes/results.json]

The crate `tpchgen` makes the tables at the given scale. PostgreSQL's cluster is on ext4 on a loop device over the block file of a volume
with a paced disk and a paced SSD, whose size is --flash per cent of the database. As in the paper, the tables are loaded first, and then keys
and indexes are made. Then the queries 2, 17, 18 and 19 run --runs times, one after the other; before each run PostgreSQL is restarted and the
page cache is emptied. `isotherm classify --postgres` determines the classes of the files every second. `dss-lru-s` has the paper's priorities
(indexes last), `reversed` has indexes first and user tables last. The figures of a run come from `stats`. The contents of flash are those
after the runs before. Needs root, PostgreSQL, cgroup v1 memory, FUSE. The first policy's run determines the size of the database.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import volume
from volume import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = ["region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem"]
QUERIES = [2, 17, 18, 19]
PORT = 54399
SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{data}'
port = {port}
shared_buffers = 16MB
work_mem = 4MB
maintenance_work_mem = 16MB
effective_cache_size = 64MB
max_wal_size = 64MB
min_wal_size = 32MB
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
jit = off
autovacuum = off
track_counts = on
"""


class Database:
    """A cluster on a mounted volume, whose processes are in a control group."""

    def __init__(self, v, group, tool):
        self.v, self.group, self.tool = v, group, tool
        self.bin = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        self.data = f"{v.fs}/data"
        os.mkdir(self.data)
        shutil.chown(self.data, "postgres")
        self.as_postgres(self.bin / "initdb", "-A", "trust", "-D", self.data)
        with open(f"{self.data}/postgresql.conf", "a") as f:
            f.write(SETTINGS.format(data=self.data, port=PORT))
        self.teller = None

    def as_postgres(self, *args, **kw):
        return self.group.inside("runuser", "-u", "postgres", "--", *args, **kw)

    def start(self):
        self.as_postgres(self.bin / "pg_ctl", "-w", "-t", "300", "-D", self.data, "-l", f"{self.data}/log", "start")
        if self.teller is None:
            dsn = f"host={self.data} port={PORT} user=postgres dbname=postgres"
            self.teller = subprocess.Popen([self.v.isotherm, "classify", "--postgres", dsn, "--volume", "v", "--every", "1"], cwd=self.v.place,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        if self.teller is not None:
            self.teller.terminate()
            self.teller.wait()
            self.teller = None
        self.as_postgres(self.bin / "pg_ctl", "-w", "-t", "300", "-D", self.data, "-m", "fast", "stop")

    def sql(self, text):
        return self.as_postgres(self.bin / "psql", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-h", self.data, "-p", str(PORT), "postgres", input=text)

    def load(self, scale):
        """Loads the tables, then makes keys and indexes. Returns the seconds of both."""
        begun = time.monotonic()
        self.sql(run(self.tool, "schema"))
        for table in TABLES:
            # The rows are generated outside of the control group, because that memory does not belong to the database.
            psql = ["sh", "-c", f'echo $$ > {self.group.place}/cgroup.procs && exec "$@"', "sh", "runuser", "-u", "postgres", "--",
                    str(self.bin / "psql"), "-q", "-v", "ON_ERROR_STOP=1", "-h", self.data, "-p", str(PORT), "postgres",
                    "-c", f"copy {table} from stdin delimiter '|'"]
            rows = subprocess.Popen([self.tool, table, str(scale)], stdout=subprocess.PIPE)
            run(*psql, stdin=rows.stdout)
        tables = time.monotonic()
        self.sql(run(self.tool, "keys"))
        self.sql("analyze; checkpoint;")
        return tables - begun, time.monotonic() - tables

    def pgbench(self, *words):
        return self.as_postgres(self.bin / "pgbench", "-q" if "-i" in words else "-n", "-h", self.data, "-p", str(PORT), *words, "postgres")


def ask(db, opts):
    """The seconds of each query, or of this number of transactions of pgbench."""
    if opts.pgbench:
        begun = time.monotonic()
        db.pgbench("-c", "4", "-j", "2", "-t", str(opts.pgbench // 4))
        return {"pgbench": round(time.monotonic() - begun, 2)}
    seconds = {}
    for number in QUERIES:
        begun = time.monotonic()
        db.sql(run(db.tool, "query", str(number)))
        seconds[str(number)] = round(time.monotonic() - begun, 2)
    return seconds


def one_run(db, v, opts):
    """Runs the queries with an empty page cache."""
    db.stop()
    v.unmount()
    v.mount()
    db.start()
    time.sleep(3)
    before = v.counters()
    with volume.Recorder(v, opts.record):
        seconds = ask(db, opts)
    out = volume.measured(before, v.counters())
    return {"seconds": round(sum(seconds.values()), 2), "queries": seconds, **out}


def one(policy, opts, flash_mib):
    """Makes and fills a volume, and runs the queries --runs times."""
    place = tempfile.mkdtemp(dir=opts.dir, prefix="tpch-")
    os.chmod(place, 0o755)
    group = volume.Group("isotherm-tpch", opts.memory)
    name = {"none": None, "reversed": "dss-lru-s"}.get(policy, policy)
    if name and opts.set:
        name = f"{name},{opts.set}"
    v = volume.Volume(opts.isotherm, place, name, mib=opts.mib, flash_mib=flash_mib, extent=opts.extent, mkfs=["mkfs.ext4", "-q", "-F"], mount=opts.mount)
    try:
        if policy == "reversed":
            run(opts.isotherm, "classes", "set", "v", "25+priority=0+admit=always", "23-24+priority=12+admit=calm", cwd=place)
        db = Database(v, group, opts.tool)
        db.start()
        try:
            pictures = volume.Pictures(v)
            load = db.load(opts.scale) if not opts.pgbench else [0.0, 0.0]
            if opts.pgbench:
                db.pgbench("-i", "-s", str(max(1, round(opts.scale * 50))))
            bytes_ = int(db.sql("select pg_database_size('postgres')").strip())
            runs = []
            for i in range(opts.runs):
                runs.append(one_run(db, v, opts))
                print(f"{policy:<10} run {i + 1}: {runs[-1]['seconds']:8.1f} s {runs[-1]['queries']}, hits {runs[-1]['hit_ratio']:.1%}, "
                      f"cleaning {runs[-1]['cleaning_share']:.1%}", flush=True)
            contents, flash = v.contents(), v.counters()["fast_bytes"] if name else 0
        finally:
            points = pictures.stop()
            db.stop()
        return {"load_s": [round(s, 1) for s in load], "database_bytes": bytes_, "flash_bytes": flash, "runs": runs,
                "contents": contents, "over_time": points[:: max(1, len(points) // 40)]}
    finally:
        v.close()
        group.close()
        shutil.rmtree(place, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("isotherm", type=os.path.abspath)
    p.add_argument("--scale", type=float, default=0.2)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--policies", default="none,dss-lru,dss-lru-s,reversed")
    p.add_argument("--memory", type=int, default=64, help="MiB of memory for PostgreSQL with its page cache")
    p.add_argument("--flash", type=float, default=10, help="per cent of the database")
    p.add_argument("--extent", default="4K")
    p.add_argument("--mib", type=int, default=2048)
    p.add_argument("--set", default="", help="parameters of the policy: KEY=VALUE,...")
    p.add_argument("--mount", default="noatime")
    p.add_argument("--dir", default="/dev/shm")
    p.add_argument("--pgbench", type=int, default=0, metavar="N", help="N transactions of pgbench instead, on 50 x scale of its units")
    p.add_argument("--record", help="record the last run's requests as a trace")
    p.add_argument("--keep", help="a file of results; docs/classes-live.md is made from bench/classes/results.json")
    opts = p.parse_args()
    if os.getuid() != 0:
        sys.exit("bench/classes/tpch.py: loop devices and mounts need root")
    run(ROOT / "scripts/install-deps", "postgresql", "e2fsprogs", "util-linux", "fuse3")
    run("cargo", "build", "--quiet", "--release", "-p", "isotherm-classify", "--example", "tpch", cwd=ROOT)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    opts.tool = target / "release/examples/tpch"
    # With indexes a database is about twice as large as its text; the results have the real size. The volume's own metadata on flash is added.
    flash_mib = volume.OWN_MIB + max(4, round(opts.scale * 1024 * 2 * opts.flash / 100))
    print(f"{volume.machine()}; load {os.getloadavg()[0]:.1f}; scale {opts.scale}, {flash_mib - volume.OWN_MIB} MiB of flash, {opts.memory} MiB of memory")
    for policy in opts.policies.split(","):
        load = os.getloadavg()[0]
        result = one(policy, opts, flash_mib)
        result["about"] = {"machine": volume.machine(), "load": [round(load, 1), round(os.getloadavg()[0], 1)], "scale": opts.scale, "extent": opts.extent,
                           "memory_mib": opts.memory, "set": opts.set, "mount": opts.mount}
        if opts.keep:
            volume.keep(opts.keep, f"tpch {policy}", result)


main()
