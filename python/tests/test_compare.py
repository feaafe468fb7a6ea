"""Policies side by side, sizes, samples, traces in memory, and how notebooks show them."""

import pyarrow
import pytest

import isotherm

SMALL = {"fast_size": "10%", "limit": 5000}


def test_a_comparison_has_bounds_and_regret(mysql):
    c = isotherm.compare(mysql, ["lru", "greendm,PT=2"], depth=4, **SMALL)
    rows = {row["name"]: row for row in c["rows"]}
    assert {"lru", "greendm,PT=2", "linear", "hdd-only", "ssd-only"} <= set(rows)
    assert rows["lru"]["cost_regret"] >= 0 and rows["hdd-only"]["cost_regret"] is None
    assert 0 < rows["lru"]["report"]["fast_hit_ratio"] <= c["bounds"]["hit_ratio"] <= 1
    # The same run alone is the same run.
    alone = isotherm.sim(mysql, "lru", depth=4, **SMALL)
    assert rows["lru"]["report"]["digest"] == alone["digest"]
    table = c.table()
    assert table.num_rows == len(rows) and {"name", "cost_regret", "elapsed_s"} <= set(table.column_names)


def test_a_comparison_has_a_page(mysql, tmp_path):
    c = isotherm.compare(mysql, "lru", **SMALL)
    page = c.page(tmp_path / "page.html")
    assert page.lower().startswith("<!doctype html>") and "hdd-only" in page
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page


def test_sizes_give_a_curve(mysql):
    curve = isotherm.sim(mysql, "lru", fast_size=["1%", "10%", "40%"], hit_only=True)
    assert isinstance(curve, isotherm.Curve) and len(curve) == 3
    misses = [m for _, m in curve.points()]
    assert misses == sorted(misses, reverse=True)
    assert curve[1]["fast_hit_ratio"] == isotherm.sim(mysql, "lru", fast_size="10%", hit_only=True)["fast_hit_ratio"]
    assert curve.table().num_rows == 3
    with pytest.raises(isotherm.Error, match="fast_size"):
        isotherm.sim(mysql, "lru", fast_size=[])


def test_a_sample_states_its_error(mysql):
    options = {"fast_size": ["10%", "30%"], "hit_only": True}
    whole = isotherm.sim(mysql, "lru", **options)
    part = isotherm.sim(mysql, "lru", sample=0.1, **options)
    for a, b in zip(whole, part):
        assert b["sample"]["samples"] == 4 and a["sample"] is None
        assert abs(a["fast_hit_ratio"] - b["fast_hit_ratio"]) < 0.05
        assert b["requests"] == a["requests"] and b["accesses"] == a["accesses"]
    with pytest.raises(isotherm.Error, match="hit_only"):
        isotherm.sim(mysql, "lru", fast_size="10%", sample=0.1)
    with pytest.raises(isotherm.Error, match="neighbours"):
        isotherm.sim(mysql, "greendm", sample=0.1, **options)


def test_a_table_is_a_trace(mysql):
    table = isotherm.read_trace(mysql, limit=5000)
    of_file = isotherm.sim(mysql, "lru", **SMALL)
    of_table = isotherm.sim(table, "lru", fast_size="10%")
    assert of_table["digest"] == of_file["digest"]
    columns = {name: table[name].to_pylist() for name in ("time_ns", "offset", "length", "op")}
    assert isotherm.sim(columns, "lru", fast_size="10%")["fast_hit_ratio"] == of_file["fast_hit_ratio"]
    rows = isotherm.compare(table, ["lru"], fast_size="10%")["rows"]
    assert rows[0]["report"]["digest"] == of_file["digest"]
    for library in ("pandas", "polars"):
        frame = pytest.importorskip(library).DataFrame(columns)
        assert isotherm.sim(frame, "lru", fast_size="10%")["fast_hit_ratio"] == of_file["fast_hit_ratio"], library


def test_a_bare_table_is_read_and_timed():
    run = isotherm.sim({"offset": [0, 4096, 0], "length": [4096] * 3}, "lru", fast_size="100%")
    assert run["reads"] == 3 and run["writes"] == 0 and run["touched_extents"] == 2
    seconds = {"offset": [0, 0], "length": [512, 512], "op": ["R", "w"], "time_s": [0.0, 2.0]}
    run = isotherm.sim(seconds, "lru", fast_size="100%", time="trace")
    assert run["writes"] == 1 and run["elapsed_s"] >= 2


TWO = {"offset": [0, 0], "length": [512, 512], "op": ["R", "w"]}
# The second request comes 1.5 s after the first.
START = 1_538_323_200


@pytest.mark.parametrize(
    "times",
    [
        {"time_s": [START + 0.25, START + 1.75]},
        {"time_ns": [START * 10**9, START * 10**9 + 1_500_000_000]},
        {"time": pyarrow.array([START * 1000, START * 1000 + 1500], pyarrow.timestamp("ms"))},
        {"time": pyarrow.array([START * 1000, START * 1000 + 1500], pyarrow.timestamp("ms", "UTC"))},
        {"time": pyarrow.array([100, 1600], pyarrow.duration("ms"))},
        {"time_s": [-1.5, 0.0]},
    ],
    ids=lambda times: "-".join(times),
)
def test_time_begins_with_the_first_request(times):
    run = isotherm.sim(pyarrow.table({**TWO, **times}), "lru", fast_size="100%", time="trace")
    assert 1.5 <= run["elapsed_s"] < 1.6


def test_a_first_request_that_is_late_holds_up_nothing():
    run = isotherm.sim({**TWO, "time_s": [2.0, 1.5]}, "lru", fast_size="100%", time="trace")
    assert run["elapsed_s"] < 0.1


def test_devices_may_have_names():
    named = isotherm.sim({**TWO, "device": ["sdb", "sda"]}, "lru", fast_size="100%", hit_only=True)
    numbered = isotherm.sim({**TWO, "device": [0, 1]}, "lru", fast_size="100%", hit_only=True)
    assert named["touched_extents"] == 2 and named["digest"] == numbered["digest"]
    with pytest.raises(isotherm.Error, match="device: some are missing"):
        isotherm.sim({**TWO, "device": ["sdb", None]}, "lru", fast_size="100%")


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"offset": [0]}, "no column `length`"),
        ({"offset": [0], "length": [-1]}, "trace"),
        ({"offset": [0], "length": ["x"]}, "trace"),
        ({"offset": [0], "length": [512], "op": ["erase"]}, "erase"),
        ({"offset": pyarrow.array([2**64 - 1], "uint64"), "length": [4096]}, "row 0"),
        ({"offset": [0], "length": [512], "class": [64]}, "class"),
        ({"offset": [None], "length": [512]}, "missing values"),
        ({"offset": [0], "length": [512], "time_s": [None]}, "missing values"),
        ({"offset": [], "length": []}, "no request"),
    ],
)
def test_wrong_columns_are_named(columns, what):
    table = pyarrow.table(columns)
    with pytest.raises(isotherm.Error, match=what):
        isotherm.sim(table, "lru", fast_size="10%")


def test_notebooks_show_tables(mysql):
    run = isotherm.sim(mysql, "lru", **SMALL)
    for shown, word in [
        (run, "mean latency"),
        (isotherm.sim(mysql, "lru", fast_size=["1%", "2%"], hit_only=True), "miss ratio"),
        (isotherm.compare(mysql, ["lru"], **SMALL), "no policy can beat"),
        (isotherm.sweep(traces=str(mysql), policies=["lru"], fast_size=["10%"], limit=1000, hit_only=True), "served from fast"),
    ]:
        html = shown._repr_html_()
        assert html.startswith("<table") and word in html and "lru" in html
    run["policy"] = "<script>"
    assert "<script>" not in run._repr_html_()
