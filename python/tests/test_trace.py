"""Traces as Arrow tables."""

import json

import pyarrow
import pytest

import isotherm


def test_a_table_has_what_the_trace_has(mysql):
    table = isotherm.read_trace(mysql)
    info = isotherm.trace_info(mysql)
    assert table.num_rows == info["requests"] == 80794
    ops = table["op"].combine_chunks().dictionary_decode().to_pylist()
    assert ops.count("read") == info["reads"] and ops.count("write") == info["writes"]
    lengths = table["length"].to_pylist()
    assert sum(n for n, op in zip(lengths, ops) if op == "write") == info["bytes_written"]
    times = table["time_ns"].to_numpy()
    assert (times[1:] >= times[:-1]).all()
    assert table.schema.metadata[b"isotherm.format"] == b"blkreplay"
    assert json.loads(table.schema.metadata[b"isotherm.stats"])["requests"] == 80794


def test_every_field_arrives(little):
    table = isotherm.read_trace(little)
    assert table.to_pydict() == {
        "time_ns": [0, 100, 200],
        "device": [0, 1, 0],
        "op": ["read", "write", "flush"],
        "offset": [0, 8192, 0],
        "length": [4096, 512, 0],
        "class": [1, 0, 0],
        "flags": [0, 1, 0],
        "file_size": [None, 12345, None],
        "latency_ns": [7000, None, None],
    }
    assert json.loads(table.schema.metadata[b"isotherm.devices"]) == ["7", "3"]


def test_streams_come_in_batches_and_begin_anew(mysql):
    trace = isotherm.open_trace(mysql)
    for _ in range(2):
        with pyarrow.RecordBatchReader.from_stream(trace) as stream:
            assert [b.num_rows for b in stream] == [65536, 80794 - 65536]
    # Half-read and unread streams are let go of.
    trace.__arrow_c_stream__()
    assert next(iter(pyarrow.RecordBatchReader.from_stream(trace))).num_rows == 65536


def test_a_table_that_was_stored_is_a_trace(mysql, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = isotherm.read_trace(mysql, limit=2000)
    file = tmp_path / "own.parquet"
    for compression in ("snappy", "gzip", "zstd", "none"):
        parquet.write_table(table, file, compression=compression)
        back = isotherm.read_trace(file)
        for name in ("time_ns", "op", "offset", "length"):
            assert back[name].to_pylist() == table[name].to_pylist(), (compression, name)
    parquet.write_table(table, file, compression="lz4")
    with pytest.raises(isotherm.Error, match="compressed by LZ4"):
        isotherm.read_trace(file)


def test_columns_and_the_unit_of_time_can_be_named(tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("R|1001|8|5\nW|77|16|9\n")
    columns = "op,offset_sectors,length_sectors,time_ms"
    table = isotherm.read_trace(own, columns=columns)
    assert table["offset"].to_pylist() == [1001 * 512, 77 * 512]
    assert table["time_ns"].to_pylist() == [0, 4_000_000]
    assert isotherm.trace_info(own, columns=columns)["writes"] == 1
    assert isotherm.sim(own, "lru", fast_size="10%", hit_only=True, columns=columns)["writes"] == 1
    rows = isotherm.compare(own, ["lru"], fast_size="10%", hit_only=True, columns=columns)["rows"]
    assert rows[0]["report"]["writes"] == 1
    five = tmp_path / "five.txt"
    five.write_text("0 0 8 8 1\n3000 0 16 8 1\n")
    assert isotherm.read_trace(five, time_unit="ms")["time_ns"].to_pylist() == [0, 3_000_000_000]
    with pytest.raises(isotherm.Error, match="time_unit: `h`"):
        isotherm.read_trace(five, time_unit="h")
    with pytest.raises(isotherm.Error, match="columns: .*colour"):
        isotherm.read_trace(own, columns="colour,offset_4k,length_4k")


def test_limits_and_generators():
    table = isotherm.read_trace("gen:postmark,scale=0.001", limit=100)
    assert table.num_rows == 100


def test_bad_records_name_file_and_line(little):
    little.write_text(little.read_text() + "nonsense\n")
    with pytest.raises(isotherm.Error, match=r"little\.csv: line 5: expected"):
        isotherm.read_trace(little)
    skipped = isotherm.read_trace(little, skip_bad=1)
    assert skipped.num_rows == 3
    assert json.loads(skipped.schema.metadata[b"isotherm.stats"])["bad_skipped"] == 1


def test_unknown_content_says_what_to_do(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(b"\x00\x01\x02 not a trace")
    with pytest.raises(isotherm.Error, match="name the format"):
        isotherm.open_trace(file)
    with pytest.raises(isotherm.Error, match="limit: -1"):
        isotherm.read_trace(file, limit=-1)
