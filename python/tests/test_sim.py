"""Runs under presets."""

import json
import signal

import pytest

import isotherm
from conftest import ROOT

SMALL = {"fast_size": "10%", "limit": 5000}


def test_keys_are_those_of_the_command_line(mysql):
    run = isotherm.sim(mysql, "greendm", **SMALL)
    schema = json.loads((ROOT / "docs" / "json" / "sim.schema.json").read_text())
    while "properties" not in schema:
        schema = schema.get("oneOf", schema.get("anyOf", [None]))[0]
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]
            whole = json.loads((ROOT / "docs" / "json" / "sim.schema.json").read_text())
            schema = whole["$defs"][name]
    # Keys about sleep budgets exist only in runs that have one.
    assert set(schema["required"]) <= set(run) <= set(schema["properties"])
    assert run["requests"] == 5000
    assert 0 < run["fast_hit_ratio"] < 1
    assert run["energy_j"] > 0 and run["elapsed_s"] > 0
    assert set(run["wear_eu"]) == {"fast", "slow"}


def test_equal_runs_have_equal_digests_and_others_do_not(mysql):
    digest = isotherm.sim(mysql, "greendm,PT=2", **SMALL)["digest"]
    assert digest == isotherm.sim(str(mysql), "greendm,PT=2", **SMALL)["digest"]
    assert digest != isotherm.sim(mysql, "lru", **SMALL)["digest"]


def test_a_larger_fast_tier_hits_more_and_depth_is_faster(mysql):
    base = isotherm.sim(mysql, "lru", **SMALL)
    more = isotherm.sim(mysql, "lru", fast_size="40%", limit=5000)
    deep = isotherm.sim(mysql, "lru", depth=16, **SMALL)
    assert more["fast_hit_ratio"] > base["fast_hit_ratio"]
    assert deep["elapsed_s"] < base["elapsed_s"]


def test_series_are_lists_of_one_length(mysql):
    series = isotherm.sim(mysql, "greendm", time_bins=10, **SMALL)["series"]
    assert len(series["requests"]) >= 10
    assert len(series["requests"]) == len(series["latency_mean_s"]) == len(series["members"][0]["power_w"])
    assert sum(series["requests"]) == 5000


def test_hit_only_has_no_time(mysql):
    run = isotherm.sim(mysql, "sieve", hit_only=True, fast_size="10%")
    assert run["requests"] == 80794 and run["elapsed_s"] is None and run["energy_j"] is None


def test_three_tiers_and_sleep(mysql):
    tiers = [("nvme-tlc", "5%"), ("intel-320-300", "10%"), "wd5000aaks"]
    run = isotherm.sim(mysql, "greendm", tiers=tiers, limit=2000, time="trace", standby=[0, 0, 5])
    assert len(run["usage"]["members"]) == 3
    assert run["spin_downs"] > 0


def test_settings_hold_moves_back(mysql):
    free = isotherm.sim(mysql, "lru", **SMALL)
    held = isotherm.sim(mysql, "lru", settings={"move_bytes_per_s": 100_000}, **SMALL)
    assert held["fetches"] < free["fetches"] / 2
    assert held["moves"]["fetches"]["refused"]["throttled"] > 0


def test_traces_side_by_side_and_generators(mysql):
    both = isotherm.sim([mysql, "gen:postmark,scale=0.001"], "lru", **SMALL)
    assert " + gen:postmark" in both["trace"] and both["requests"] == 5000


def test_progress_counts_up_to_all(mysql):
    seen = []
    isotherm.sim(mysql, "lru", progress=lambda now, all: seen.append((now, all)), **SMALL)
    assert seen[-1] == (5000, 5000)


class Interrupted(Exception):
    pass


def test_a_signal_ends_a_run(mysql):
    class Slow:
        """Asks to be interrupted, then would take hours."""

        calls = 0

        def on_access(self, view, access):
            Slow.calls += 1
            if Slow.calls == 10:
                signal.raise_signal(signal.SIGUSR1)
            if Slow.calls > 10:
                import time

                time.sleep(1)

    def handler(number, frame):
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Interrupted):
            isotherm.sim(mysql, Slow(), fast_size="10%")
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"policy": "greendmm"}, "nearest: `greendm`"),
        ({"policy": "greendm,PTT=1"}, "PTT"),
        ({"policy": 7}, "policy int: it lacks `on_access"),
        ({"trace": "no-such-trace"}, "no-such-trace: no such trace"),
        ({"trace": "gen:postmarc"}, "postmark"),
        ({"trace": 7}, "trace: 7"),
        ({"trace": []}, "trace: name at least one"),
        ({"fast_size": None}, "fast_size: needed"),
        ({"fast_size": "0%"}, "size of tier 0: `0%`"),
        ({"fast_size": 1.5}, "fast_size: 1.5"),
        ({"extent": 5000}, "extent: `5000`"),
        ({"depth": 0}, "depth: 0"),
        ({"depth": "1"}, "depth: '1'"),
        ({"accelerate": 2.0}, 'accelerate: needs time="trace"'),
        ({"time": "trace", "depth": 2}, "depth: is of the closed loop"),
        ({"time": "open"}, "time: `open`"),
        ({"warm_up": -1}, "warm_up: -1"),
        ({"warm_up": 10_000}, "warm-up: the trace has only"),
        ({"host_power": float("nan")}, "host_power: nan"),
        ({"fast": "intel"}, "no device preset `intel`"),
        ({"tiers": [("wd5000aaks", "5%")]}, "tiers: leave out fast_size"),
        ({"tiers": ["nvme-tlc", "wd5000aaks"], "fast_size": None}, "tiers: tier 0 needs a size"),
        ({"tiers": [7], "fast_size": None}, "tiers: 7"),
        ({"standby": [1, 2, 3]}, "standby: names 3 members, there are 2"),
        ({"settings": {"p99_limit": 1}}, "p99_limit_s"),
        ({"settings": {"p99_limit_s": "x"}}, "settings['p99_limit_s']"),
        ({"format": "sps"}, "format: unknown trace format `sps`; nearest: `spc`"),
        ({"progress": 1}, "progress: 1"),
    ],
)
def test_errors_name_field_and_fix(mysql, wrong, named):
    with pytest.raises(isotherm.Error) as e:
        isotherm.sim(**{"trace": mysql, "policy": "lru", **SMALL, **wrong})
    assert named in str(e.value)


def test_lists_have_what_the_command_line_lists():
    assert {"msr", "parquet"} <= {f["name"] for f in isotherm.formats()}
    assert "PT" in [p["name"] for q in isotherm.policies() if q["name"] == "greendm" for p in q["params"]]
    assert {"hdd", "ssd"} <= {d["kind"] for d in isotherm.devices()}
    assert "postmark" in {g["name"] for g in isotherm.generators()}


def test_a_run_has_the_page_of_the_command(mysql, tmp_path):
    run = isotherm.sim(mysql, "lru", time_bins=10, **SMALL)
    page = run.page(tmp_path / "run.html")
    assert page.startswith("<!DOCTYPE html>") and "under lru" in page
    assert (tmp_path / "run.html").read_text(encoding="utf-8") == page
    curve = isotherm.sim(mysql, "lru", fast_size=["5%", "20%"], limit=2000)
    assert curve[0].page() != curve[1].page()


def test_a_run_can_be_sent_elsewhere_without_its_page(mysql):
    import pickle

    run = isotherm.sim(mysql, "lru", **SMALL)
    there = pickle.loads(pickle.dumps(run))
    assert there == run and isinstance(there, isotherm.Run)
    with pytest.raises(isotherm.Error, match="page"):
        there.page()


def test_results_as_pandas(mysql):
    pytest.importorskip("pandas")
    run = isotherm.sim(mysql, "lru", **SMALL)
    assert run.to_pandas()["digest"][0] == run["digest"]
    curve = isotherm.sim(mysql, "lru", fast_size=["5%", "20%"], limit=2000)
    assert list(curve.to_pandas()["fast_bytes"]) == [r["fast_bytes"] for r in curve]
    compared = isotherm.compare(mysql, ["lru"], **SMALL)
    assert list(compared.to_pandas()["name"]) == [r["name"] for r in compared["rows"]]
    swept = isotherm.sweep(traces=str(mysql), policies=["lru"], fast_size=["5%", "10%"], limit=1000)
    assert len(swept.to_pandas()) == 2
    assert list(swept.table().to_pandas()["fast_size"]) == list(swept.to_pandas()["fast_size"])


@pytest.mark.parametrize("call", [isotherm.sim, isotherm.compare])
def test_an_option_that_does_not_exist_is_named(mysql, call):
    with pytest.raises(isotherm.UnknownOption, match=r"fast_sise: no option of \w+\(\): did you mean `fast_size`") as e:
        call(mysql, "lru", fast_sise="10%")
    assert isinstance(e.value, isotherm.Error) and isinstance(e.value, TypeError)
    with pytest.raises(isotherm.UnknownOption, match="limt"):
        isotherm.read_trace(mysql, limt=5)
