"""One run."""

import json

from . import _native
from ._native import Error
from ._words import number, path, reading, size, text, whole


def sim(
    trace,
    policy,
    *,
    fast_size=None,
    fast=None,
    slow=None,
    tiers=None,
    extent="4K",
    time="closed",
    depth=None,
    accelerate=None,
    warm_up=0,
    limit=None,
    seed=0,
    hit_only=False,
    host_power=0.0,
    standby=(),
    settings=None,
    discards=True,
    time_bins=0,
    address_bins=0,
    format=None,
    skip_bad=0,
    block_bytes=None,
    progress=None,
):
    """Play ``trace`` under ``policy``; gives a dict with the keys of ``isotherm sim --json``.

    trace: a path, the name of a generator (``"gen:NAME,key=value"``), or a list of them that are played side by side.
    policy: a preset as on the command line (``"greendm,PT=2"``, see ``policies()``), or an object with
        ``on_access(view, access)``; docs/python.md lists what else it may have.
    fast_size: bytes of the fast tier, or a share of what the trace touches (``"10%"``).
    fast, slow: device presets (``devices()``); without a name the first usual one that is large enough.
    tiers: instead of these three, any number of ``(preset, size)``, fastest first; the last needs no size.
    extent: extent size, a power of two from 4K to 4M.
    time, depth, accelerate: ``"closed"`` with so many requests in flight, or ``"trace"``, that many times faster.
    warm_up, limit: requests before anything counts, and at most.
    hit_only: hits and moves only, without devices; much faster. Figures of time and energy are then None.
    host_power: watts beside the devices. standby: seconds until a device sleeps, by member, 0 for never.
    settings: budgets and throttles of the engine, as ``{"p99_limit_s": 0.05}`` (docs/policies.md, "Budgets").
    time_bins, address_bins: add ``series``, lists over time and address.
    format, skip_bad, block_bytes: how to read the trace.
    progress: called now and then with (requests, of all).

    Raises Error, which names the field and the fix; an exception of the policy is its cause.
    """
    names = list(trace) if isinstance(trace, (list, tuple)) else [trace]
    if not names:
        raise Error("trace: name at least one")
    if tiers is not None and not (fast_size is None and fast is None and slow is None):
        raise Error("tiers: leave out fast_size, fast and slow, which it replaces")
    if tiers is None:
        if fast_size is None:
            raise Error("fast_size: needed: bytes, or a share of what the trace touches such as '10%'")
        tiers = [(fast, fast_size), (slow, "100%")]
    if progress is not None and not callable(progress):
        raise Error(f"progress: {progress!r}: something to call with (requests, of all)")
    report = _native.sim(
        [path(t, "trace") for t in names],
        policy,
        _tiers(list(tiers)),
        extent=size(extent, "extent"),
        time=text(time, "time"),
        depth=whole(depth, "depth", 1, 65536, none=True),
        accelerate=number(accelerate, "accelerate", none=True),
        warm_up=whole(warm_up, "warm_up"),
        seed=whole(seed, "seed"),
        hit_only=bool(hit_only),
        host_power=number(host_power, "host_power"),
        standby=[number(s, "standby") for s in standby],
        settings=[(text(k, "settings"), number(v, f"settings[{k!r}]")) for k, v in (settings or {}).items()],
        discards=bool(discards),
        time_bins=whole(time_bins, "time_bins", 0, 2**20),
        address_bins=whole(address_bins, "address_bins", 0, 2**20),
        progress=progress,
        **reading(format, limit, skip_bad, block_bytes),
    )
    return json.loads(report)


def _tiers(tiers):
    out = []
    for i, tier in enumerate(tiers):
        try:
            preset, of = (tier, None) if isinstance(tier, str) else tier
        except (TypeError, ValueError):
            raise Error(f"tiers: {tier!r}: a device preset, or (preset, size)") from None
        text(preset, f"preset of tier {i}", none=True)
        if of is None:
            if i + 1 < len(tiers):
                raise Error(f"tiers: tier {i} needs a size: write ({preset!r}, '8G') or ({preset!r}, '10%')")
            of = "100%"
        out.append((preset, size(of, "fast_size" if preset is None else f"tiers[{i}]")))
    return out
