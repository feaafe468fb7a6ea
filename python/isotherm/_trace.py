"""Traces as Arrow tables."""

import json

from ._native import Error, Trace
from ._words import path, reading


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
