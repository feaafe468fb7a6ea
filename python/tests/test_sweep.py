"""Grids, on threads, on processes, on a dask cluster."""

import concurrent.futures
import multiprocessing
import os
import pathlib
import time

import pyarrow.parquet
import pytest

import isotherm


def grid(mysql):
    return {"traces": mysql, "policies": ["greendm", "lru"], "fast_size": ["5%", "10%"], "limit": 3000}


def digests(results):
    return [(r["cell"]["policy"], r["cell"]["fast_size"], r["report"]["digest"]) for r in results]


class Still:
    """Nothing moves."""

    def on_access(self, view, access):
        return None


class Meets:
    """Waits in `folder` until policies of two processes are there, so that it ends only if two work at once."""

    def __init__(self, folder):
        self.name = f"pid-{os.getpid()}"
        (pathlib.Path(folder) / self.name).touch()
        for _ in range(600):
            if len(list(pathlib.Path(folder).iterdir())) >= 2:
                return
            time.sleep(0.1)
        raise RuntimeError("the other worker did not come")

    def on_access(self, view, access):
        return None


class MakeMeets:
    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self):
        return Meets(self.folder)


def test_cells_are_the_product_and_equal_single_runs(mysql):
    seen = []
    results = isotherm.sweep(progress=lambda done, all: seen.append((done, all)), **grid(mysql))
    assert [r["cell"]["policy"] for r in results] == ["greendm", "lru"] * 2
    assert seen == [(i, 4) for i in range(5)]
    assert (results.cells, results.kept, results.run, results.failed) == (4, 0, 4, [])
    alone = isotherm.sim(mysql, "lru", fast_size="10%", limit=3000)
    assert results[3]["report"]["digest"] == alone["digest"]
    table = results.table()
    assert table["fast_size"].to_pylist() == ["5%", "5%", "10%", "10%"]
    assert table["elapsed_s"].to_pylist()[3] == alone["elapsed_s"]
    assert table["wear_eu_fast"].null_count == 0


def test_what_is_kept_is_not_run_again(mysql, tmp_path):
    first = isotherm.sweep(grid(mysql), out=tmp_path)
    again = isotherm.sweep({**grid(mysql), "policies": ["greendm", "lru", "linear"]}, out=tmp_path)
    assert (again.cells, again.kept, again.run) == (6, 4, 2)
    assert set(digests(first)) < set(digests(again))
    assert pyarrow.parquet.read_table(tmp_path / "results.parquet").num_rows == 6


def test_a_grid_file_means_the_same(mysql, tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text(f'traces = ["{mysql}"]\npolicies = ["greendm", "lru"]\nfast_size = ["5%", "10%"]\nlimit = 3000\n')
    assert digests(isotherm.sweep(file)) == digests(isotherm.sweep(grid(mysql)))


def test_policies_in_python_and_generators(mysql):
    cells = isotherm.sweep(traces=["gen:postmark,scale=0.001"], policies=["linear", Still], params=None, limit=500)
    assert [c["cell"]["policy"] for c in cells] == ["linear", "python:Still"]
    assert all(c["report"]["requests"] == 500 for c in cells)


def test_a_failed_cell_stops_no_other(mysql, tmp_path):
    wrong = {**grid(mysql), "fast": ["intel-320-300", "pcm-none"]}
    with pytest.raises(isotherm.Error, match="no device preset `pcm-none`"):
        isotherm.sweep(wrong)
    mixed = {**grid(mysql), "traces": [mysql, tmp_path / "short.csv"], "warm_up": 10}
    (tmp_path / "short.csv").write_text("time_ns,device,op,offset,length\n1,0,read,0,4096\n")
    kept = isotherm.sweep(mixed, errors="keep")
    assert (kept.run, len(kept.failed), len(kept)) == (4, 4, 4)
    assert kept.failed[0].startswith("isotherm sim ") and "warm-up" in kept.failed[0]
    with pytest.raises(isotherm.Error, match="and 3 more") as e:
        isotherm.sweep(mixed)
    assert digests(e.value.summary) == digests(kept)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"policys": ["lru"]}, "unknown key `policys`; nearest: `policies`"),
        ({"traces": []}, "`traces` and `policies` are needed"),
        ({"fast_size": [None]}, "fast_size: None"),
        ({"limit": {1}}, "grid:"),
        ({"depth": [-1]}, "depth: a number of at least 0"),
        ({"traces": "no-such-trace"}, "no-such-trace: no such trace"),
    ],
)
def test_wrong_grids_are_named(mysql, wrong, named):
    with pytest.raises(isotherm.Error) as e:
        isotherm.sweep({**grid(mysql), **wrong})
    assert named in str(e.value)


def test_a_pool_of_processes_gives_the_same(mysql, tmp_path):
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=spawn) as pool:
        results = isotherm.sweep(grid(mysql), executor=pool)
    assert digests(results) == digests(isotherm.sweep(grid(mysql), threads=1))


def test_a_dask_cluster_of_two_workers(mysql, tmp_path):
    distributed = pytest.importorskip("distributed", reason="dask is not installed: pip install 'isotherm[dask]'")
    meet = tmp_path / "meet"
    meet.mkdir()
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:
        here = pathlib.Path(__file__).parent
        client.run(lambda folder: __import__("sys").path.insert(0, folder), str(here))
        results = isotherm.sweep(grid(mysql), executor=client, out=tmp_path / "out")
        assert digests(results) == digests(isotherm.sweep(grid(mysql)))
        # What the workers did is kept here.
        assert isotherm.sweep(grid(mysql), executor=client, out=tmp_path / "out").kept == 4
        # One cell each at once, on processes that are not this one.
        both = isotherm.sweep(
            traces=mysql, policies=[MakeMeets(meet)], fast_size=["5%", "10%"], limit=500, executor=client
        )
        names = {r["report"]["policy"] for r in both}
        assert len(names) == 2 and f"python:pid-{os.getpid()}" not in names
        # A worker's exception arrives as the text of a failed cell.
        bad = isotherm.sweep({**grid(mysql), "warm_up": 9999}, executor=client, errors="keep")
        assert len(bad.failed) == 4 and "warm-up" in bad.failed[0]
