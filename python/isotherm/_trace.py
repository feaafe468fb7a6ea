"""Traces as Arrow tables."""

import json
from collections.abc import Mapping

from ._native import Error, Trace
from ._words import path, reading

_OPS = {"read": 0, "r": 0, "write": 1, "w": 1, "flush": 2, "f": 2, "discard": 3, "d": 3, "trim": 3}
# Columns of a trace in memory, their Arrow types, and what stands where a table has none (None: it must have it).
_COLUMNS = {
    "device": ("uint32", 0),
    "op": ("uint8", 0),
    "offset": ("uint64", None),
    "length": ("uint32", None),
    "class": ("uint8", 0),
    "flags": ("uint8", 0),
}


def source(value, field):
    """What ``_native`` plays: a path or generator as text, or columns in memory as an Arrow table of fixed types."""
    if isinstance(value, Mapping) or hasattr(value, "__arrow_c_stream__") or hasattr(value, "to_records"):
        return _columns(value, field)
    return path(value, field)


def _columns(value, field):
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as e:
        raise Error(f"{field}: a table needs pyarrow: pip install 'isotherm[arrow]'") from e
    try:
        if hasattr(value, "to_records"):
            table = pyarrow.Table.from_pandas(value, preserve_index=False)
        else:
            table = pyarrow.table(dict(value) if isinstance(value, Mapping) else value)
        n = table.num_rows
        if "time_ns" in table.column_names:
            times = table["time_ns"].cast("uint64")
        elif "time_s" in table.column_names:
            # Half a microsecond of rounding is less than any trace tells.
            times = pyarrow.compute.round(pyarrow.compute.multiply(table["time_s"].cast("float64"), 1e9)).cast("uint64")
        else:
            # As where a file has no time: 1 ms a request.
            times = pyarrow.array(range(0, n * 1_000_000, 1_000_000), "uint64")
        columns = {"time_ns": times}
        for name, (kind, usual) in _COLUMNS.items():
            if name in table.column_names:
                column = table[name]
                columns[name] = _ops(pyarrow, column, field) if name == "op" else column.cast(kind)
            elif usual is None:
                raise Error(f"{field}: has no column `{name}`; it has {', '.join(table.column_names)}")
            else:
                columns[name] = pyarrow.array([usual] * n, kind)
        return pyarrow.table(columns)
    except (pyarrow.ArrowException, TypeError, OverflowError) as e:
        raise Error(f"{field}: {e}") from None


def _ops(pyarrow, column, field):
    column = column.cast("string")
    lower = pyarrow.compute.utf8_lower(column)
    found = pyarrow.compute.index_in(lower, value_set=pyarrow.array(list(_OPS)))
    if found.null_count:
        wrong = pyarrow.compute.filter(column, pyarrow.compute.is_null(found))[0].as_py()
        raise Error(f"{field}: op: {wrong!r}: read, write, flush or discard (or R, W, F, D)")
    return pyarrow.compute.take(pyarrow.array(list(_OPS.values()), "uint8"), found)


def open_trace(file, *, format=None, limit=None, skip_bad=0, block_bytes=None):
    """The trace in ``file``, not read yet: anything that takes Arrow's C stream reads it in bounded memory.

    ``pyarrow.RecordBatchReader.from_stream(isotherm.open_trace(f))``, ``polars.DataFrame(isotherm.open_trace(f))``, …
    """
    return Trace(path(file, "file"), **reading(format, limit, skip_bad, block_bytes))


def read_trace(file, *, format=None, limit=None, skip_bad=0, block_bytes=None):
    """The trace in ``file`` as a ``pyarrow.Table``.

    Columns: time_ns, device, op ("read", "write", "flush", "discard"), offset, length, class, flags, file_size,
    latency_ns. Metadata of the schema: isotherm.format, isotherm.devices (a JSON list; the column counts in it),
    isotherm.timed, isotherm.stats (what the reader counted).
    """
    try:
        import pyarrow
    except ImportError as e:
        raise Error("read_trace: needs pyarrow: pip install 'isotherm[arrow]'") from e
    trace = open_trace(file, format=format, limit=limit, skip_bad=skip_bad, block_bytes=block_bytes)
    try:
        table = pyarrow.table(trace)
    except (pyarrow.ArrowException, OSError) as e:
        raise Error(trace.error or str(e)) from None
    return table.replace_schema_metadata(
        {
            "isotherm.format": trace.format,
            "isotherm.devices": json.dumps(trace.devices),
            "isotherm.timed": json.dumps(trace.timed),
            "isotherm.stats": trace.stats(),
        }
    )


def trace_info(file, *, format=None, limit=None, skip_bad=0, block_bytes=None):
    """The figures of ``isotherm trace info --json``: requests, bytes, working set, reuse distances, …"""
    trace = open_trace(file, format=format, limit=limit, skip_bad=skip_bad, block_bytes=block_bytes)
    return json.loads(trace.info())
