"""Grids of runs: one cell, one task of an executor."""

import concurrent.futures
import json
import os
import tempfile

from . import _native
from ._native import Error
from ._show import FIGURES, arrow, figure, flat, frame, table
from ._sim import sim
from ._words import path, size, whole

# Words of a cell that `sim` has too, by its own names.
_SAME = ("fast_size", "fast", "slow", "extent", "depth", "accelerate", "warm_up", "limit", "seed", "hit_only", "host_power")
# Stands for a policy in Python while the grid is made.
_STAND_IN = "linear"


class Summary(list):
    """Results in the order of the grid, policies in Python last: dicts with ``cell``, ``args`` and ``report``.

    ``cells``, ``kept``, ``run`` and ``failed`` are those of ``isotherm sweep --json``.
    """

    def __init__(self, results, cells, kept, run, failed):
        super().__init__(results)
        self.cells, self.kept, self.run, self.failed = cells, kept, run, failed

    def table(self):
        """The single figures as a ``pyarrow.Table``: a row a result, a column a figure of cell and report."""
        return arrow(self._rows())

    def to_pandas(self):
        """The same as a ``pandas.DataFrame``."""
        return frame(self._rows())

    def _rows(self):
        rows = []
        for r in self:
            # A cell's word stands where the report has one of the same name.
            own = {k: v for k, v in r["cell"].items() if not isinstance(v, (dict, list))}
            rows.append({**own, **{k: v for k, v in flat(r["report"]).items() if k not in own}})
        return rows

    def _repr_html_(self):
        keys = ("trace", "fast_size", "extent")
        head = ["policy", *keys, *(name for _, name, _ in FIGURES)]
        rows = []
        for r in self:
            cell, report = r["cell"], r["report"]
            rows.append([cell["policy"], *(cell[k] for k in keys), *(figure(report, key, form) for key, _, form in FIGURES)])
        return table(f"{len(self)} runs", head, rows)


def run_cell(cell):
    """Run a cell given as JSON, on whatever machine this is; gives its entry of cells.json."""
    return _native.Runner().run(cell)


def run_python_cell(cell, make):
    """The same with the policy that ``make()`` gives."""
    c = json.loads(cell)
    time = {"time": "trace"} if c["accelerate"] is not None else {}
    if c["hit_only"]:
        c["depth"] = c["accelerate"] = None
        time = {}
    drives = {} if c["hit_only"] else {k: c.get(k) for k in ("flash", "over_provisioning", "span")}
    report = sim(c["trace"], make(), **{k: c[k] for k in _SAME}, **drives, **time)
    return json.dumps({"cell": c, "args": None, "report": report})


def sweep(grid=None, *, out=None, executor=None, threads=None, progress=None, errors="raise", **axes):
    """Run a grid of cells, each one task; gives a Summary, a list of results.

    grid: a TOML file as of ``isotherm sweep``, or a dict with its keys; or give the keys as arguments:
        ``sweep(traces=[...], policies=[...], fast_size=["5%", "10%"])``. Every value may be a list.
        ``policies`` also takes classes (or functions) that make a policy in Python; one is made for each cell.
    out: a directory as of ``isotherm sweep --out``: what is there is not run again, and cells.json and results.parquet are
        written. Policies in Python are neither kept nor looked for there, since their code may have changed.
    executor: a ``concurrent.futures.Executor`` or a ``dask.distributed.Client``. Its workers need isotherm, and the traces
        at the same paths. Without one: threads of this process, as many as ``threads`` says or there are processors.
    progress: called with (cells done, cells of all) when a cell has ended.
    errors: "raise" an Error when everything else is done (its ``summary`` has the results), or "keep" the texts of
        failures in ``failed``.
    """
    if errors not in ("raise", "keep"):
        raise Error(f"errors: {errors!r}: 'raise' or 'keep'")
    cells, makers = _cells(grid, axes)
    with tempfile.TemporaryDirectory(prefix="isotherm-") as scratch:
        summary = _run(cells, makers, scratch if out is None else path(out, "out"), executor, threads, progress)
    if summary.failed and errors == "raise":
        more = f" (and {len(summary.failed) - 1} more)" if len(summary.failed) > 1 else ""
        error = Error(summary.failed[0] + more)
        error.summary = summary
        raise error
    return summary


def _cells(grid, axes):
    """Cells as JSON texts, and by place of a cell what makes its policy, where that is not a preset."""
    if grid is not None and axes:
        raise Error("grid: give a file or a dict, or the keys as arguments, not both")
    if grid is None or isinstance(grid, dict):
        return _of_dict(dict(axes if grid is None else grid))
    name = path(grid, "grid")
    try:
        with open(name, encoding="utf-8") as f:
            text = f.read()
    except (OSError, UnicodeDecodeError) as e:
        raise Error(f"{name}: cannot read: {e}") from e
    return _native.grid(text, name), {}


def _of_dict(grid):
    def listed(value):
        return list(value) if isinstance(value, (list, tuple)) else [value]

    grid = {k: v for k, v in grid.items() if v is not None}
    for key in ("fast_size", "extent"):
        if key in grid:
            grid[key] = [size(v, key) for v in listed(grid[key])]
    if "traces" in grid:
        grid["traces"] = [path(t, "traces") for t in listed(grid["traces"])]
    policies = listed(grid.pop("policies", []))
    presets = [p for p in policies if not callable(p)]
    makers = [p for p in policies if callable(p)]

    def made(policies, **without):
        try:
            return _native.grid(json.dumps({k: v for k, v in {**grid, "policies": policies}.items() if k not in without}))
        except TypeError as e:
            raise Error(f"grid: {e}: numbers, texts, and lists of them") from None

    cells = made(presets) if presets or not makers else []
    by_place = {}
    for make in makers:
        # `params` are of presets.
        for cell in made([_STAND_IN], params=None):
            by_place[len(cells)] = make
            cells.append(cell)
    return cells, by_place


def _run(cells, makers, out, executor, threads, progress):
    presets = [c for i, c in enumerate(cells) if i not in makers]
    kept_in = _native.Sweep(presets, os.fspath(out))
    missing = set(kept_in.missing())
    kept = len(presets) - len(missing)
    runner = _native.Runner()
    own = executor is None
    if own:
        workers = whole(threads, "threads", 1, 4096, none=True) or os.cpu_count() or 1
        executor = concurrent.futures.ThreadPoolExecutor(workers, thread_name_prefix="isotherm")
    elif hasattr(executor, "get_executor"):
        # A dask Client; results of equal calls must not be shared with earlier sweeps of other program versions.
        executor = executor.get_executor(pure=False)
    futures, failed, python = {}, {}, {}
    try:
        # Presets are the first cells, so that places are the same with and without policies in Python.
        for i, cell in enumerate(cells):
            if i in makers:
                futures[executor.submit(run_python_cell, cell, makers[i])] = i
            elif i in missing:
                futures[executor.submit(runner.run if own else run_cell, cell)] = i
        done = kept
        if progress:
            progress(done, len(cells))
        for future in concurrent.futures.as_completed(futures):
            i = futures[future]
            try:
                if i in makers:
                    python[i] = json.loads(future.result())
                else:
                    kept_in.keep(i, future.result())
            except Exception as e:  # noqa: BLE001  one cell stops no other, whatever a worker raises
                what = f"policy {_named(makers[i])}" if i in makers else _native.command(cells[i])
                failed[i] = f"{what}: {e if str(e) else repr(e)}"
            done += 1
            if progress:
                progress(done, len(cells))
    except BaseException:
        runner.stop()
        for future in futures:
            future.cancel()
        raise
    finally:
        if own:
            executor.shutdown(wait=True)
    results = json.loads(kept_in.finish())
    for i, result in sorted(python.items()):
        result["cell"]["policy"] = result["report"]["policy"]
        results.append(result)
    return Summary(results, len(cells), kept, len(futures) - len(failed), [failed[i] for i in sorted(failed)])


def _named(make):
    return getattr(make, "__name__", repr(make))
