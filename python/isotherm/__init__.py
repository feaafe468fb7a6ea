"""Isotherm's lab: storage policies over recorded traces and device models.

    import isotherm
    run = isotherm.sim("web.spc.zst", "greendm,PT=2", fast_size="10%")
    run["elapsed_s"], run["energy_j"]

``sim`` plays one trace, ``compare`` policies side by side, ``sweep`` a grid, ``read_trace`` gives a trace as an Arrow table. A policy is a preset's name or
an object with ``on_access(view, access)``.
"""

import json as _json

from . import _native
from ._native import Access, Action, Error, Trace, View, __version__
from ._show import Comparison, Curve, Run
from ._sim import compare, sim
from ._sweep import Summary, sweep
from ._trace import open_trace, read_trace, trace_info
from ._words import UnknownOption

__all__ = [
    "Access",
    "Action",
    "Comparison",
    "Curve",
    "Error",
    "Run",
    "Summary",
    "Trace",
    "UnknownOption",
    "View",
    "__version__",
    "compare",
    "devices",
    "formats",
    "generators",
    "open_trace",
    "policies",
    "read_trace",
    "sim",
    "sweep",
    "trace_info",
]


def formats():
    """Trace formats: dicts with ``name`` and ``what``."""
    return _json.loads(_native.formats())


def policies():
    """Placement policies: dicts with ``name``, ``kind``, ``what``, ``source`` and ``params``."""
    return _json.loads(_native.policies())


def devices():
    """Device models: dicts with ``name``, ``kind``, ``capacity_bytes``, ``what``, ``price_usd``, ``break_even_s``."""
    return _json.loads(_native.devices())


def generators():
    """Workload generators, named ``gen:NAME,key=value`` wherever a trace is: dicts with ``name``, ``what``, ``params``, …"""
    return _json.loads(_native.generators())
