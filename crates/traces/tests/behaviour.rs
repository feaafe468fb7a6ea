//! Properties that all formats share: errors with a place, skipping, limits, compression, conversion.

mod common;

use common::samples;
use isotherm_core::Nanos;
use isotherm_traces::{
    Format, Op, Options, Record, SideBySide, WriteOptions, Writer, convert, info, open, scan, sniff,
};
use std::io::Write;
use std::path::{Path, PathBuf};

fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).expect("a writable directory");
    (dir, path)
}

fn all(path: &Path) -> Vec<Record> {
    open(path, &Options::default())
        .expect("it opens")
        .collect::<Result<_, _>>()
        .expect("a sound trace")
}

fn failure(bytes: &[u8], options: &Options) -> String {
    let (_dir, path) = file("trace", bytes);
    match open(&path, options) {
        Err(e) => e.to_string(),
        Ok(mut reader) => reader.find_map(Result::err).expect("an error").to_string(),
    }
}

/// One number per line.
fn numbers(numbers: impl Iterator<Item = u64>) -> String {
    let lines: Vec<String> = numbers.map(|n| n.to_string()).collect();
    lines.join("\n")
}

fn named(format: Format) -> Options {
    Options {
        format: Some(format),
        ..Options::default()
    }
}

const CASES: &[(Format, &[u8], &str)] = &[
    (
        Format::Spc,
        b"0,1,512,r,0.0\n0,1,x12,r,0.0\n",
        "line 2: expected Size in bytes (a whole number), found \"x12\"",
    ),
    (
        Format::Spc,
        b"0,1,512,r\n",
        "line 1: expected Timestamp, found the end of the line",
    ),
    (
        Format::Msr,
        b"1,h,0,Reed,0,512,1\n",
        "line 1: expected Type (read or write), found \"Reed\"",
    ),
    (
        Format::Tencent,
        b"1,2,3,7,5\n",
        "line 1: expected IOType 0 (read) or 1 (write), found \"7\"",
    ),
    (
        Format::Alibaba,
        b"1,R,18446744073709551615,512,5\n",
        "expected a request that ends below 2^64 bytes",
    ),
    (
        Format::Alibaba,
        b"1,R,0,4294967296,5\n",
        "expected a length below 4 GiB, found 4294967296",
    ),
    (
        Format::Csv,
        b"op,length\n",
        "line 1: expected a first line with the column \"offset\"",
    ),
    (
        Format::Csv,
        b"op,offset,length\nread,0\n",
        "line 2: expected 3 fields, as in the first line, found 2 fields",
    ),
    (
        Format::Csv,
        b"op,offset,length,class\nread,0,1,64\n",
        "expected a class of 0 to 63, found 64",
    ),
    (
        Format::FioV3,
        b"fio version 2 iolog\n",
        "line 1: expected the first line \"fio version 3 iolog\"",
    ),
    (
        Format::FioV3,
        b"fio version 3 iolog\n1 f wait 5 0\n",
        "line 2: expected an action",
    ),
    (
        Format::Vscsi1,
        &[0; 40],
        "byte 0: expected version 1 in the upper byte, found 0x0000",
    ),
    (
        Format::Oracle,
        &[0xff; 24],
        "byte 0: expected an object number",
    ),
    (
        Format::Oracle,
        &[0; 25],
        "byte 24: expected a record of 24 bytes, found 1 bytes at the end",
    ),
    (
        Format::BlockList,
        b"5\n\xff\xfe\n",
        "line 2: expected a block number (a whole number), found \"\\xff\\xfe\"",
    ),
];

#[test]
fn errors_name_the_place_and_both_sides() {
    for (format, bytes, message) in CASES {
        let e = failure(bytes, &named(*format));
        assert!(e.contains(message) && e.contains("trace"), "{format}: {e}");
    }
}

#[test]
fn unknown_content_is_refused_with_the_known_names() {
    let e = failure(b"nothing that any tracer wrote\n", &Options::default());
    assert!(
        e.contains("no known format") && e.contains("blkreplay, spc, fiu"),
        "{e}"
    );
    assert!(failure(b"", &Options::default()).contains("empty"));
    let missing = open("/nonexistent/trace", &Options::default())
        .expect_err("no such file")
        .to_string();
    assert!(
        missing.contains("/nonexistent/trace: cannot open"),
        "{missing}"
    );
}

#[test]
fn bad_records_are_skipped_up_to_the_allowed_number() {
    let text = b"0,1,512,r,0.0\nbad\n0,2,512,w,1.0\n0,3,512,x,1.0\n0,4,0,w,1.0\n0,5,512,w,2.0\n";
    let (_dir, path) = file("trace", text);
    let mut reader = open(
        &path,
        &Options {
            skip_bad: 2,
            ..named(Format::Spc)
        },
    )
    .expect("it opens");
    assert_eq!(
        reader
            .by_ref()
            .map(|r| r.expect("skipped").offset / 512)
            .collect::<Vec<_>>(),
        [1, 2, 5]
    );
    let stats = reader.stats();
    assert_eq!(
        (stats.requests, stats.bad_skipped, stats.zero_length_dropped),
        (3, 2, 1)
    );
    let reader = open(
        &path,
        &Options {
            skip_bad: 1,
            ..named(Format::Spc)
        },
    )
    .expect("it opens");
    let results: Vec<_> = reader.collect();
    // The valid records before the fault come first, then the error once, then nothing.
    assert_eq!(
        results.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, true, false]
    );
}

#[test]
fn the_limit_counts_requests_delivered() {
    let (_dir, path) = file("trace", b"0 1 0 0\n1 0 0 1\n2 1 0 2\n3 1 0 3\n");
    let options = Options {
        limit: Some(2),
        ..Options::default()
    };
    let mut reader = open(&path, &options).expect("it opens");
    let mut batch = Vec::new();
    assert_eq!(reader.read_batch(&mut batch, 100).ok(), Some(2));
    assert_eq!(batch[1].offset, 1024);
    assert_eq!(reader.read_batch(&mut batch, 100).ok(), Some(0));
}

#[test]
fn batches_and_iteration_mix() {
    let text: String = numbers(0..10_000);
    let (_dir, path) = file("trace", text.as_bytes());
    let mut reader = open(&path, &Options::default()).expect("it opens");
    let mut blocks: Vec<u64> = reader
        .by_ref()
        .take(5)
        .map(|r| r.expect("sound").offset)
        .collect();
    let mut batch = Vec::new();
    while reader.read_batch(&mut batch, 777).expect("sound") > 0 {}
    blocks.extend(batch.iter().map(|r| r.offset));
    assert!(blocks.iter().copied().eq((0..10_000).map(|n| n * 4096)));
}

#[test]
fn compressed_traces_read_the_same() {
    for (format, bytes) in samples() {
        let (_dir, path) = file("plain", &bytes);
        let plain = all(&path);
        assert!(!plain.is_empty(), "{format}");
        let (_dir, path) = file(
            "misleading.txt",
            &zstd::encode_all(&bytes[..], 3).expect("zstd"),
        );
        assert_eq!(all(&path), plain, "{format}");
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&bytes).expect("gzip");
        let (_dir, path) = file("x", &gz.finish().expect("gzip"));
        assert_eq!(all(&path), plain, "{format}");
    }
}

#[test]
fn a_cut_compressed_trace_is_an_error_not_an_end() {
    let text: String = numbers((0..200_000).map(|n| n * 7919 % 1_000_003));
    let mut packed = zstd::encode_all(text.as_bytes(), 3).expect("zstd");
    packed.truncate(packed.len() / 2);
    let e = failure(&packed, &Options::default());
    assert!(e.contains("cannot read on after byte"), "{e}");
}

/// Every field set to something that is not its default.
fn rich() -> Vec<Record> {
    let flags = |bits| isotherm_traces::Flags::from_bits(bits).expect("known bits");
    vec![
        Record {
            class: 63,
            flags: flags(31),
            ..Record::new(Nanos(0), Op::Read, 4096, 4096)
        },
        Record {
            file_size: Some(0),
            device: 1,
            ..Record::new(Nanos(250_001), Op::Write, u64::MAX - 512, 512)
        },
        Record {
            latency_ns: Some(u64::MAX),
            ..Record::new(Nanos(250_001), Op::Flush, 0, 0)
        },
        Record {
            file_size: Some(u64::MAX),
            ..Record::new(Nanos(1 << 40), Op::Discard, 0, u32::MAX)
        },
        Record::new(Nanos(1 << 60), Op::Write, 1, 1),
    ]
}

fn write(path: &Path, options: &WriteOptions, records: &[Record]) -> isotherm_traces::Written {
    let mut writer = Writer::create(path, options).expect("it can be created");
    writer.name_device("sda".to_owned());
    writer.name_device("two words".to_owned());
    for r in records {
        writer.write(r).expect("the format holds it");
    }
    writer.finish().expect("a writable directory")
}

#[test]
fn every_field_survives_our_own_formats() {
    // Enough records for several row groups and unaligned chunks.
    let many: Vec<Record> = rich()
        .into_iter()
        .chain((0..300_001u64).map(|n| Record {
            latency_ns: (n % 3 == 0).then_some(n),
            ..Record::new(Nanos((1 << 60) + n), Op::Read, n * 512, 512)
        }))
        .collect();
    for (format, name) in [
        (Format::Parquet, "t.parquet"),
        (Format::Csv, "t.csv"),
        (Format::Csv, "t.csv.zst"),
    ] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join(name);
        let written = write(&path, &WriteOptions::new(format), &many);
        assert_eq!((written.requests, written.dropped), (many.len() as u64, 0));
        assert!(written.lost.is_empty(), "{format}: {:?}", written.lost);
        assert_eq!(all(&path), many, "{format}");
        assert_eq!(
            std::fs::read_dir(dir.path()).expect("it lists").count(),
            1,
            "no part is left"
        );
    }
}

#[test]
fn parquet_keeps_names_header_and_lack_of_time() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("t.parquet");
    let options = WriteOptions {
        timed: false,
        header: b"a licence\n".to_vec(),
        ..WriteOptions::new(Format::Parquet)
    };
    write(&path, &options, &rich());
    let mut reader = open(&path, &Options::default()).expect("it opens");
    assert_eq!(reader.device_name(1).as_deref(), Some("two words"));
    assert_eq!(reader.header(), b"a licence\n");
    assert!(!reader.timed());
    assert_eq!(
        reader.nth(4).and_then(Result::ok).map(|r| r.time),
        Some(Nanos(4_000_000))
    );
}

#[test]
fn a_parquet_device_out_of_bounds_is_a_bad_record() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("t.parquet");
    let far = Record {
        device: u32::MAX,
        ..Record::new(Nanos(0), Op::Read, 0, 512)
    };
    write(
        &path,
        &WriteOptions::new(Format::Parquet),
        &[rich()[0], far],
    );
    let e = info(&path, &Options::default())
        .expect_err("too many devices")
        .to_string();
    assert!(
        e.contains("row 1: expected a device below 1048576, found 4294967295"),
        "{e}"
    );
}

#[test]
fn damaged_parquet_is_an_error() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("t.parquet");
    write(&path, &WriteOptions::new(Format::Parquet), &rich());
    let whole = std::fs::read(&path).expect("it was written");
    std::fs::write(&path, &whole[..whole.len() - 9]).expect("writable");
    let e = open(&path, &Options::default())
        .expect_err("cut")
        .to_string();
    assert!(e.contains("not a readable Parquet file"), "{e}");
}

#[test]
fn conversions_keep_what_the_format_holds() {
    for (from, bytes) in samples() {
        let (dir, path) = file("from", &bytes);
        let before = all(&path);
        let timed = {
            let mut reader = open(&path, &Options::default()).expect("it opens");
            reader.by_ref().for_each(drop);
            reader.timed()
        };
        for to in Format::writable() {
            let out = dir.path().join(format!("to.{to}"));
            let converted = convert(&path, &Options::default(), &out, to);
            let aligned = before
                .iter()
                .all(|r| r.offset % 512 == 0 && r.len % 512 == 0);
            if to == Format::Blkreplay && !aligned {
                let e = converted.expect_err("odd bytes").to_string();
                assert!(e.contains("no whole 512 B sectors"), "{e}");
                assert!(!out.exists() && !dir.path().join("to.blkreplay.part").exists());
                continue;
            }
            let written = converted.unwrap_or_else(|e| panic!("{from} to {to}: {e}"));
            let head = std::fs::read(&out).expect("it was written");
            let sniffed = sniff(&head);
            assert_eq!(sniffed, Some(to), "{from} to {to}");
            let after = all(&out);
            if to == Format::Oracle {
                assert!(after.iter().all(|r| r.len == 4096 && r.offset % 4096 == 0));
                continue;
            }
            assert_eq!(after.len() as u64, written.requests, "{from} to {to}");
            assert_eq!(after.len() as u64 + written.dropped, before.len() as u64);
            let kinds = |rs: &[Record]| {
                rs.iter()
                    .filter(|r| r.op != Op::Flush)
                    .map(|r| (r.op, r.len))
                    .collect::<Vec<_>>()
            };
            assert_eq!(kinds(&after), kinds(&before), "{from} to {to}");
            if matches!(to, Format::Parquet | Format::Csv) {
                assert_eq!(after, before, "{from} to {to}");
            } else if timed {
                let slack = if to == Format::FioV2 { 100_000 } else { 1_000 };
                let times = before
                    .iter()
                    .filter(|r| r.op != Op::Flush || to != Format::Blkreplay);
                for (a, b) in after.iter().zip(times) {
                    // Times are relative to the first request that is kept, which may not be the first of the trace.
                    assert!(
                        a.time.0.abs_diff(b.time.0) <= slack,
                        "{from} to {to}: {a:?} {b:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn conversion_to_one_device_lays_devices_side_by_side() {
    let (dir, path) = file("spc", b"4,8,512,r,0.0\n1,16,512,w,0.5\n4,0,512,w,1.0\n");
    let out = dir.path().join("out.load");
    let written =
        convert(&path, &Options::default(), &out, Format::Blkreplay).expect("it converts");
    assert!(written.lost.contains("device"));
    let offsets: Vec<u64> = all(&out).iter().map(|r| r.offset).collect();
    assert_eq!(offsets, [4096, (4 << 20) + 8192, 0]);
    let map =
        SideBySide::new(&scan(&path, &Options::default()).expect("it scans")).expect("they fit");
    assert_eq!(map.end(), (4 << 20) + 8192 + 512);
}

#[test]
fn oracle_general_gets_the_next_access() {
    let (dir, path) = file("blocks", b"7\n9\n7\n7\n");
    let out = dir.path().join("out.bin");
    convert(&path, &Options::default(), &out, Format::Oracle).expect("it converts");
    let bytes = std::fs::read(&out).expect("it was written");
    let next: Vec<i64> = bytes
        .chunks(24)
        .map(|b| i64::from_le_bytes(b[16..].try_into().expect("8 bytes")))
        .collect();
    assert_eq!(next, [2, -1, 3, -1]);
}

#[test]
fn an_unfinished_trace_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("t.csv.gz");
    let mut writer =
        Writer::create(&path, &WriteOptions::new(Format::Csv)).expect("it can be created");
    writer
        .write(&Record::new(Nanos(0), Op::Read, 0, 1))
        .expect("it holds it");
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).expect("it lists").count(), 0);
    let e = Writer::create(&path, &WriteOptions::new(Format::Msr))
        .err()
        .expect("not writable")
        .to_string();
    assert!(e.contains("msr can be read but not written"), "{e}");
}

#[test]
fn info_has_the_contract_s_keys() {
    let (_dir, path) = file(
        "t",
        b"0,8,8192,r,0.0\n0,24,4096,w,0.25\n1,9,512,w,2.0\n1,0,512,r,1.0\n",
    );
    let i = info(&path, &Options::default()).expect("a sound trace");
    let json = serde_json::to_value(&i).expect("it serialises");
    let want = [
        ("format", serde_json::json!("spc")),
        ("requests", 4.into()),
        ("reads", 2.into()),
        ("writes", 2.into()),
        ("bytes_read", 8704.into()),
        ("bytes_written", 4608.into()),
        // Blocks 1 to 3 of the first device, 0 and 1 of the second.
        ("unique_4k", 5.into()),
        ("first_byte", 0.into()),
        ("last_byte", 16_383.into()),
        ("duration_s", 2.0.into()),
        ("sequential_ratio", 0.25.into()),
        ("devices", 2.into()),
    ];
    for (key, value) in want {
        assert_eq!(json[key], value, "{key}");
    }
    assert_eq!(json["sizes"]["512"], 2);
    assert_eq!(json["reader"]["time_went_back"], 1);
}
