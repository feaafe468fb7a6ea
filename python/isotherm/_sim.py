"""One run."""

import json

from . import _native
from ._native import Error
from ._show import Comparison, Curve, Run
from ._trace import source
from ._words import number, options_named, reading, size, text, whole


@options_named
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
    new_volume=False,
    rest=0.0,
    limit=None,
    seed=0,
    hit_only=False,
    sample=None,
    flash=None,
    over_provisioning=None,
    span=None,
    host_power=0.0,
    standby=(),
    settings=None,
    discards=True,
    time_bins=0,
    address_bins=0,
    format=None,
    columns=None,
    time_unit=None,
    skip_bad=0,
    block_bytes=None,
    progress=None,
):
    """Play ``trace`` under ``policy``; gives a Run, a dict with the keys of ``isotherm sim --json``.

    trace: a path, the name of a generator (``"gen:NAME,key=value"``), a table in memory (a DataFrame, an Arrow table, or a dict of
        columns: ``offset``, ``length``, and where there are, ``time_ns`` or ``time_s``, ``op``, ``device``, ``class``, ``flags``),
        or a list of these that are played side by side.
    policy: a preset as on the command line (``"greendm,PT=2"``, see ``policies()``), or an object with
        ``on_access(view, access)``; docs/python.md lists what else it may have.
    fast_size: bytes of the fast tier, or a share of what the trace touches (``"10%"``). A list of them gives a Curve, a Run each.
    fast, slow: device presets (``devices()``); without a name the first usual one that is large enough.
    tiers: instead of these three, any number of ``(preset, size)``, fastest first; the last needs no size.
    extent: extent size, a power of two from 4K to 4M.
    time, depth, accelerate: ``"closed"`` with so many requests in flight, or ``"trace"``, that many times faster.
    warm_up, limit: requests before anything counts, and at most. rest: seconds between the two.
    new_volume: the volume begins empty, as ``create`` makes it; otherwise data lie where the trace has them.
    hit_only: hits and moves only, without devices; much faster. Figures of time and energy are then None.
    sample: with hit_only, estimate hits from samples of this share of the extents; ``run["sample"]`` has the error.
    flash, over_provisioning, span: as ``--flash``, ``--over-provisioning`` and ``--span`` of the command.
    host_power: watts beside the devices. standby: seconds until a device sleeps, by member, 0 for never.
    settings: budgets and throttles of the engine, as ``{"p99_limit_s": 0.05}`` (docs/policies.md, "Budgets").
    time_bins, address_bins: add ``series``, lists over time and address.
    format, columns, time_unit, skip_bad, block_bytes: how to read the trace, as the options of the command (docs/traces.md).
    progress: called now and then with (requests, of all).

    Raises Error, which names the field and the fix; an exception of the policy is its cause.
    """
    traces = [source(t, "trace") for t in (trace if isinstance(trace, (list, tuple)) else [trace])]
    if not traces:
        raise Error("trace: name at least one")
    if progress is not None and not callable(progress):
        raise Error(f"progress: {progress!r}: something to call with (requests, of all)")
    if sample is not None and not hit_only:
        raise Error("sample: needs hit_only=True: a sample of extents says nothing of time")
    sizes = []
    if isinstance(fast_size, (list, tuple)):
        if not fast_size:
            raise Error("fast_size: an empty list: name at least one size")
        sizes = [size(s, "fast_size") for s in fast_size]
    asked = world(
        tiers=tiers_of(tiers, sizes[0] if sizes else fast_size, fast, slow),
        extent=extent,
        time=time,
        depth=depth,
        accelerate=accelerate,
        warm_up=warm_up,
        new_volume=new_volume,
        rest=rest,
        limit=limit,
        seed=seed,
        hit_only=hit_only,
        sample=sample,
        flash=flash,
        over_provisioning=over_provisioning,
        span=span,
        host_power=host_power,
        standby=standby,
        settings=settings,
        discards=discards,
        time_bins=time_bins,
        address_bins=address_bins,
        format=format,
        columns=columns,
        time_unit=time_unit,
        skip_bad=skip_bad,
        block_bytes=block_bytes,
    )
    played = _native.sim(traces, policy, asked, sizes, progress)
    runs = [Run(r, lambda i=i: played.page(i)) for i, r in enumerate(json.loads(played.json()))]
    return Curve(runs) if sizes else runs[0]


@options_named
def compare(
    trace,
    policies,
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
    new_volume=False,
    rest=0.0,
    limit=None,
    hit_only=False,
    flash=None,
    over_provisioning=None,
    span=None,
    host_power=0.0,
    standby=(),
    settings=None,
    discards=True,
    format=None,
    columns=None,
    time_unit=None,
    skip_bad=0,
    block_bytes=None,
):
    """Play ``trace`` under each of ``policies``, with one device alone and with what no policy can beat.

    Gives a Comparison, a dict with the keys of ``isotherm compare --json``: ``rows`` (``name``, ``report``, ``cost_regret``,
    ``hit_regret``), ``bounds``, ``prices``. Arguments are those of ``sim``; policies are presets.
    """
    asked = world(
        tiers=tiers_of(tiers, fast_size, fast, slow),
        extent=extent,
        time=time,
        depth=depth,
        accelerate=accelerate,
        warm_up=warm_up,
        new_volume=new_volume,
        rest=rest,
        limit=limit,
        hit_only=hit_only,
        flash=flash,
        over_provisioning=over_provisioning,
        span=span,
        host_power=host_power,
        standby=standby,
        settings=settings,
        discards=discards,
        format=format,
        columns=columns,
        time_unit=time_unit,
        skip_bad=skip_bad,
        block_bytes=block_bytes,
    )
    names = [policies] if isinstance(policies, str) else list(policies)
    return Comparison(_native.Compared(source(trace, "trace"), [text(p, "policies") for p in names], asked))


def world(
    *,
    tiers,
    extent,
    time,
    depth,
    accelerate,
    warm_up,
    new_volume,
    rest,
    limit,
    hit_only,
    host_power,
    standby,
    settings,
    discards,
    flash,
    over_provisioning,
    span,
    format,
    columns,
    time_unit,
    skip_bad,
    block_bytes,
    seed=0,
    sample=None,
    time_bins=0,
    address_bins=0,
):
    """What a run is told, as JSON for ``_native``."""
    return json.dumps(
        {
            "tiers": _tiers(list(tiers)),
            "extent": size(extent, "extent"),
            "time": text(time, "time"),
            "depth": whole(depth, "depth", 1, 65536, none=True),
            "accelerate": number(accelerate, "accelerate", none=True),
            "warm_up": whole(warm_up, "warm_up"),
            "new_volume": bool(new_volume),
            "rest": number(rest, "rest"),
            "seed": whole(seed, "seed"),
            "hit_only": bool(hit_only),
            "sample": number(sample, "sample", none=True),
            "flash": text(flash, "flash", none=True),
            "over_provisioning": number(over_provisioning, "over_provisioning", none=True),
            "span": None if span is None else size(span, "span"),
            "host_power": number(host_power, "host_power"),
            "standby": [number(s, "standby") for s in standby],
            "settings": [(text(k, "settings"), number(v, f"settings[{k!r}]")) for k, v in (settings or {}).items()],
            "discards": bool(discards),
            "time_bins": whole(time_bins, "time_bins", 0, 2**20),
            "address_bins": whole(address_bins, "address_bins", 0, 2**20),
            **reading(format, limit, skip_bad, block_bytes, columns, time_unit),
        }
    )


def tiers_of(tiers, fast_size, fast, slow):
    """The tiers, named whole or by the usual pair."""
    if tiers is not None:
        if not (fast_size is None and fast is None and slow is None):
            raise Error("tiers: leave out fast_size, fast and slow, which it replaces")
        return tiers
    if fast_size is None:
        raise Error("fast_size: needed: bytes, or a share of what the trace touches such as '10%'")
    return [(fast, fast_size), (slow, "100%")]


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
