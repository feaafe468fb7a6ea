"""Traces as Arrow tables."""

import json
from collections.abc import Mapping

from ._native import Error, Trace
from ._words import options_named, path, reading

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
        columns = {"time_ns": _times(pyarrow, table, field)}
        for name, (kind, usual) in _COLUMNS.items():
            if name in table.column_names:
                column = table[name]
                columns[name] = _NAMED.get(name, _cast)(pyarrow, column, kind, field)
            elif usual is None:
                raise Error(f"{field}: has no column `{name}`; it has {', '.join(table.column_names)}")
            else:
                columns[name] = pyarrow.array([usual] * n, kind)
        return pyarrow.table(columns)
    except (pyarrow.ArrowException, TypeError, OverflowError) as e:
        raise Error(f"{field}: {e}") from None


def _times(pyarrow, table, field):
    """Nanoseconds since the first request, however the table states them."""
    compute, names = pyarrow.compute, table.column_names
    if "time_ns" in names:
        times = table["time_ns"].cast("int64")
    elif "time_s" in names:
        seconds = table["time_s"].cast("float64")
        # Clocks that count from 1970 are subtracted first: a float of that size does not resolve nanoseconds.
        start = seconds[0].as_py() if len(seconds) else 0.0
        times = compute.round(compute.multiply(compute.subtract(seconds, start or 0.0), 1e9)).cast("int64")
    elif "time" in names and pyarrow.types.is_temporal(table["time"].type):
        kind = table["time"].type
        unit = pyarrow.duration("ns") if pyarrow.types.is_duration(kind) else pyarrow.timestamp("ns", getattr(kind, "tz", None))
        times = table["time"].cast(unit).cast("int64")
    else:
        # As where a file has no time: 1 ms a request.
        return pyarrow.array(range(0, table.num_rows * 1_000_000, 1_000_000), "uint64")
    if times.null_count:
        raise Error(f"{field}: the times have missing values")
    if not len(times):
        return times.cast("uint64")
    # As where a file is read: the first request is at 0, and none is before it.
    since = compute.subtract(times, times[0])
    return compute.max_element_wise(since, pyarrow.scalar(0, "int64")).cast("uint64")


def _cast(pyarrow, column, kind, field):
    return column.cast(kind)


def _devices(pyarrow, column, kind, field):
    """Numbers, or names, which are numbered in the order in which they occur."""
    if pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type):
        return column.cast(kind)
    column = column.cast("string")
    if column.null_count:
        raise Error(f"{field}: device: some are missing")
    return pyarrow.compute.index_in(column, value_set=pyarrow.compute.unique(column)).cast(kind)


def _ops(pyarrow, column, kind, field):
    column = column.cast("string")
    lower = pyarrow.compute.utf8_lower(column)
    found = pyarrow.compute.index_in(lower, value_set=pyarrow.array(list(_OPS)))
    if found.null_count:
        wrong = pyarrow.compute.filter(column, pyarrow.compute.is_null(found))[0].as_py()
        raise Error(f"{field}: op: {wrong!r}: read, write, flush or discard (or R, W, F, D)")
    return pyarrow.compute.take(pyarrow.array(list(_OPS.values()), kind), found)


# Columns that may hold words.
_NAMED = {"device": _devices, "op": _ops}


@options_named
def open_trace(file, *, format=None, columns=None, time_unit=None, limit=None, skip_bad=0, block_bytes=None):
    """The trace in ``file``, not read yet: anything that takes Arrow's C stream reads it in bounded memory.

    ``pyarrow.RecordBatchReader.from_stream(isotherm.open_trace(f))``, ``polars.DataFrame(isotherm.open_trace(f))``, …
    """
    return Trace(path(file, "file"), **reading(format, limit, skip_bad, block_bytes, columns, time_unit))


@options_named
def read_trace(file, *, format=None, columns=None, time_unit=None, limit=None, skip_bad=0, block_bytes=None):
    """The trace in ``file`` as a ``pyarrow.Table``.

    Columns: time_ns, device, op ("read", "write", "flush", "discard"), offset, length, class, flags, file_size,
    latency_ns. Metadata of the schema: isotherm.format, isotherm.devices (a JSON list; the column counts in it),
    isotherm.timed, isotherm.stats (what the reader counted).
    """
    try:
        import pyarrow
    except ImportError as e:
        raise Error("read_trace: needs pyarrow: pip install 'isotherm[arrow]'") from e
    how = {"format": format, "columns": columns, "time_unit": time_unit, "limit": limit, "skip_bad": skip_bad}
    trace = open_trace(file, block_bytes=block_bytes, **how)
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


@options_named
def trace_info(file, *, format=None, columns=None, time_unit=None, limit=None, skip_bad=0, block_bytes=None):
    """The figures of ``isotherm trace info --json``: requests, bytes, working set, reuse distances, …"""
    how = {"format": format, "columns": columns, "time_unit": time_unit, "limit": limit, "skip_bad": skip_bad}
    trace = open_trace(file, block_bytes=block_bytes, **how)
    return json.loads(trace.info())
