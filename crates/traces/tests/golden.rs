//! Exact figures of real traces that may be distributed (`fixtures/`), and exact records of small hand-written ones.

mod common;

use std::path::{Path, PathBuf};

use common::{BLKTRACE_ISSUE_READ_META, BLKTRACE_QUEUE_WRITE_FUA, blktrace_event, samples};
use isotherm_core::Nanos;
use isotherm_traces::{
    Flags, Format, Op, Options, Record, TimeUnit, info, open, open_merged, sniff,
};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

/// A file with `bytes`, and the directory that keeps it.
fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("trace");
    std::fs::write(&path, bytes).expect("a writable directory");
    (dir, path)
}

fn all(path: &Path, options: &Options) -> Vec<Record> {
    let reader = open(path, options).expect("it opens");
    reader.collect::<Result<_, _>>().expect("a sound trace")
}

/// The records of the hand-written sample of `format`, which must also be sniffed as that format.
fn sample(format: Format) -> Vec<Record> {
    let bytes = samples()
        .into_iter()
        .find(|(f, _)| *f == format)
        .expect("a sample")
        .1;
    assert_eq!(sniff(&bytes), Some(format));
    let (_dir, path) = file(&bytes);
    all(&path, &Options::default())
}

fn r(time: u64, op: Op, offset: u64, len: u32) -> Record {
    Record::new(Nanos(time), op, offset, len)
}

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

#[test]
fn blkreplay_mysql() {
    let i = info(fixture("linux-mysql.load.zst"), &Options::default()).expect("a sound trace");
    assert_eq!(i.format, "blkreplay");
    assert_eq!((i.requests, i.reads, i.writes), (80_794, 7_187, 73_607));
    assert_eq!(
        (i.unique_4k, i.first_byte, i.devices),
        (142_563, Some(0), 1)
    );
    assert_eq!(i.duration_s, Some(3_599.890_074_831));
    assert_eq!(
        i.reader.bad_skipped + i.reader.zero_length_dropped + i.reader.other_events,
        0
    );
}

#[test]
fn blkreplay_windows_first_record_and_header() {
    let mut reader = open(
        fixture("windows-shared-server.load.zst"),
        &Options::default(),
    )
    .expect("it opens");
    assert_eq!(reader.format(), Format::Blkreplay);
    let first = reader.next().expect("a record").expect("a sound one");
    assert_eq!(first, r(0, Op::Write, 6_293_576 * 512, 4096));
    let second = reader.next().expect("a record").expect("a sound one");
    assert_eq!(second.time, Nanos(2_110_378_217));
    let header = String::from_utf8(reader.header().to_vec()).expect("UTF-8");
    assert!(
        header.starts_with("Copyright Thomas Schoebel-Theuer")
            && header.contains("permitted in any medium")
    );
    assert!(reader.all(|r| r.is_ok_and(|r| r.flags == Flags::NONE)));
}

#[test]
fn arc_oltp_head() {
    let i = info(fixture("arc-OLTP-head100k.lis.zst"), &Options::default()).expect("a sound trace");
    assert_eq!(
        (i.format.as_str(), i.requests, i.reads, i.bytes_read),
        ("arc", 100_000, 100_000, 51_200_000)
    );
    assert_eq!((i.duration_s, i.first_byte), (None, Some(512)));
}

#[test]
fn blkreplay() {
    let ahead = Record {
        flags: Flags::AHEAD,
        ..r(500_000_001, Op::Read, 24 * 512, 4096)
    };
    assert_eq!(
        sample(Format::Blkreplay),
        [r(0, Op::Write, 4096, 8192), ahead]
    );
}

#[test]
fn spc() {
    let w = r(0, Op::Write, 10_240, 4096);
    let second = Record {
        device: 1,
        ..r(1_499_999_000, Op::Read, 10_240, 512)
    };
    // The third record is earlier than the second: its time is raised.
    assert_eq!(
        sample(Format::Spc),
        [w, second, r(1_499_999_000, Op::Read, 0, 1024)]
    );
}

#[test]
fn fiu() {
    let second = Record {
        device: 1,
        ..r(100, Op::Read, 4096, 8192)
    };
    assert_eq!(
        sample(Format::Fiu),
        [r(0, Op::Write, 488_846_200 * 512, 4096), second]
    );
}

#[test]
fn msr() {
    let first = Record {
        latency_ns: Some(283_300),
        ..r(0, Op::Write, 9_056_014_336, 2048)
    };
    let second = Record {
        latency_ns: Some(1_000),
        device: 1,
        ..r(1_000, Op::Read, 4096, 512)
    };
    assert_eq!(sample(Format::Msr), [first, second]);
}

#[test]
fn vscsi() {
    assert_eq!(
        sample(Format::Vscsi1),
        [r(0, Op::Write, 51_200, 512), r(2_000, Op::Read, 4096, 4096)]
    );
    let first = Record {
        latency_ns: Some(40_000),
        ..r(0, Op::Write, 51_200, 512)
    };
    let flush = Record {
        latency_ns: Some(1_000),
        ..r(2_000, Op::Flush, 0, 0)
    };
    assert_eq!(sample(Format::Vscsi2), [first, flush]);
}

#[test]
fn disksim_units() {
    let second = |time| Record {
        device: 1,
        ..r(time, Op::Write, 0, 4096)
    };
    // 2500 is not a multiple of 1000, so the unit is microseconds.
    assert_eq!(
        sample(Format::DiskSim),
        [r(0, Op::Read, 4096, 8192), second(1_500_000)]
    );
    let read = |text: &str, trace_unit| {
        let (_dir, path) = file(text.as_bytes());
        all(
            &path,
            &Options {
                trace_unit,
                ..Options::default()
            },
        )[1]
        .time
        .0
    };
    let whole = "1000 0 8 16 1\n3000 1 0 8 0\n";
    assert_eq!(read(whole, None), 2_000);
    assert_eq!(read(whole, Some(TimeUnit::Milliseconds)), 2_000 * MS);
    assert_eq!(read("1.5 0 8 16 1\n3.75 1 0 8 0\n", None), 2_250_000);
}

#[test]
fn references_without_time_get_a_millisecond_each() {
    assert_eq!(
        sample(Format::Arc),
        [
            r(0, Op::Read, 512, 512),
            r(MS, Op::Read, 3_050_771 * 512, 12_800)
        ]
    );
    let blocks: Vec<u64> = sample(Format::BlockList).iter().map(|r| r.offset).collect();
    assert_eq!(blocks, [0, 17 * 4096, 17 * 4096, 3 * 4096]);
    assert_eq!(sample(Format::BlockList)[3].time, Nanos(3 * MS));
    let (_dir, path) = file(b"5\n6\n");
    let records = all(
        &path,
        &Options {
            block_bytes: Some(512),
            ..Options::default()
        },
    );
    assert_eq!(records[1], r(MS, Op::Read, 3072, 512));
}

#[test]
fn oracle_general() {
    let records = sample(Format::Oracle);
    let second = r(0, Op::Read, 1 << 52, 512);
    assert_eq!(
        records,
        [
            r(0, Op::Read, 12_288, 4096),
            second,
            r(2 * S, Op::Read, 12_288, 4096)
        ]
    );
}

#[test]
fn blktrace_takes_queued_requests_in_either_byte_order() {
    let flags = Flags::FUA.with(Flags::SYNC, true);
    let first = Record {
        flags,
        ..r(0, Op::Write, 64 * 512, 4096)
    };
    let second = Record {
        flags,
        ..r(1_000, Op::Write, 72 * 512, 8192)
    };
    assert_eq!(sample(Format::Blktrace), [first, second]);
    let big = [
        blktrace_event(true, BLKTRACE_QUEUE_WRITE_FUA, 1_000, 64, 4096, b"12345"),
        blktrace_event(true, BLKTRACE_QUEUE_WRITE_FUA, 2_000, 72, 8192, b""),
    ];
    let (_dir, path) = file(&big.concat());
    assert_eq!(all(&path, &Options::default()), [first, second]);
    assert_eq!(
        open(&path, &Options::default()).map(|r| r.format()).ok(),
        Some(Format::Blktrace)
    );
}

#[test]
fn blktrace_without_queued_requests_takes_the_issued_ones() {
    let (_dir, path) = file(&blktrace_event(
        false,
        BLKTRACE_ISSUE_READ_META,
        1_500,
        8,
        512,
        b"",
    ));
    assert_eq!(
        all(&path, &Options::default()),
        [Record {
            flags: Flags::META,
            ..r(0, Op::Read, 4096, 512)
        }]
    );
}

#[test]
fn blktrace_of_several_processors_is_merged_by_time() {
    let queue =
        |time, sector| blktrace_event(false, BLKTRACE_QUEUE_WRITE_FUA, time, sector, 4096, b"");
    let issue = blktrace_event(false, BLKTRACE_ISSUE_READ_META, 1, 8, 512, b"");
    let (_a, cpu0) = file(&[queue(10, 1), queue(30, 3), queue(50, 5)].concat());
    // The second processor only issued requests that others queued: it adds nothing, because the others have Q events.
    let (_b, cpu1) = file(&issue);
    let (_c, cpu2) = file(&[queue(20, 2), queue(30, 4)].concat());
    let (_e, idle) = file(b"");
    let reader =
        open_merged(&[&cpu1, &cpu0, &idle, &cpu2], &Options::default()).expect("they open");
    let records: Vec<Record> = reader.collect::<Result<_, _>>().expect("sound traces");
    assert_eq!(
        records.iter().map(|r| r.offset / 512).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    assert_eq!(
        records.iter().map(|r| r.time.0).collect::<Vec<_>>(),
        [0, 10, 20, 20, 40]
    );
    let (_d, list) = file(b"1\n2\n");
    let e = open_merged(&[&cpu0, &list], &Options::default())
        .expect_err("two formats")
        .to_string();
    assert!(e.contains("is blocks") && e.contains("is blktrace"), "{e}");
    let e = open_merged(&[&list, &list], &Options::default())
        .expect_err("no time")
        .to_string();
    assert!(e.contains("blocks without time cannot be merged"), "{e}");
}

#[test]
fn damaged_blktrace_goes_on_at_the_next_event() {
    let event = |time| blktrace_event(false, BLKTRACE_QUEUE_WRITE_FUA, time, 64, 4096, b"");
    let (_dir, path) = file(&[event(1), vec![0xaa; 1000], event(2)].concat());
    let e = open(&path, &Options::default())
        .expect("it opens")
        .find_map(Result::err)
        .expect("an error");
    assert!(
        e.to_string()
            .contains("byte 48: expected magic 0x65617407, found bytes [aa, aa, aa, aa]"),
        "{e}"
    );
    let mut reader = open(
        &path,
        &Options {
            skip_bad: 1,
            ..Options::default()
        },
    )
    .expect("it opens");
    assert_eq!(reader.by_ref().flatten().count(), 2);
    assert_eq!(reader.stats().bad_skipped, 1);
}

#[test]
fn blkparse() {
    let sync = |r| Record {
        flags: Flags::SYNC,
        ..r
    };
    let flush = Record {
        flags: Flags::SYNC.with(Flags::PREFLUSH, true),
        ..r(1_500, Op::Flush, 0, 0)
    };
    let meta = Record {
        flags: Flags::META,
        device: 1,
        ..r(249_999_500, Op::Read, 0, 512)
    };
    assert_eq!(
        sample(Format::Blkparse),
        [sync(r(0, Op::Write, 223_490 * 512, 4096)), flush, meta]
    );
}

#[test]
fn fio_iolog() {
    let second = r(250_000, Op::Write, 0, 512);
    let rest = [
        r(1_250_000, Op::Flush, 0, 0),
        r(1_250_000, Op::Discard, 0, 4096),
    ];
    assert_eq!(
        sample(Format::FioV2),
        [r(0, Op::Read, 4096, 8192), second, rest[0], rest[1]]
    );
    let b = Record {
        device: 1,
        ..r(10_000, Op::Read, 512, 512)
    };
    assert_eq!(
        sample(Format::FioV3),
        [r(0, Op::Write, 0, 16_384), b, r(22_000, Op::Flush, 0, 0)]
    );
    let (_dir, path) =
        file(b"fio version 2 iolog\nf add\nf open\nf write 0 512\nf write 512 512\n");
    let mut untimed = open(&path, &Options::default()).expect("it opens");
    assert_eq!(
        untimed.nth(1).and_then(Result::ok),
        Some(r(MS, Op::Write, 512, 512))
    );
    assert!(!untimed.timed(), "a log without waits has no time");
    assert_eq!(untimed.device_name(0).as_deref(), Some("f"));
}

#[test]
fn cloud_block_stores() {
    let second = Record {
        device: 1,
        ..r(74_000, Op::Read, 0, 4096)
    };
    assert_eq!(
        sample(Format::Alibaba),
        [r(0, Op::Write, 8_792_731_648, 16_384), second]
    );
    let second = Record {
        device: 1,
        ..r(S, Op::Read, 4096, 8192)
    };
    assert_eq!(
        sample(Format::Tencent),
        [r(0, Op::Write, 4_247_200 * 512, 65_536), second]
    );
}

#[test]
fn tables_by_column_name() {
    // The lines are in the order of completion.
    let second = Record {
        device: 1,
        latency_ns: Some(806_000),
        ..r(6_791_000, Op::Read, 4096, 131_072)
    };
    assert_eq!(sample(Format::Systor), [r(0, Op::Write, 512, 512), second]);
    let first = Record {
        latency_ns: Some(19_687_000),
        ..r(0, Op::Read, 270_336, 4096)
    };
    let second = Record {
        latency_ns: Some(10_000),
        device: 1,
        ..r(22_479_000, Op::Write, 256, 2048)
    };
    assert_eq!(sample(Format::Hplajw), [first, second]);
    let flags = Flags::FUA.with(Flags::META, true);
    let first = Record {
        class: 1,
        flags,
        latency_ns: Some(144_925),
        ..r(0, Op::Write, 8192, 4096)
    };
    let file = Record {
        class: 11,
        file_size: Some(1536),
        latency_ns: Some(12_530),
        device: 1,
        ..r(1_000, Op::Read, 0, 4096)
    };
    let flush = Record {
        flags: Flags::PREFLUSH,
        latency_ns: Some(85_643),
        ..r(2_000, Op::Flush, 0, 0)
    };
    let discard = Record {
        latency_ns: Some(1),
        ..r(3_000, Op::Discard, 4096, 32_768)
    };
    assert_eq!(sample(Format::Octf), [first, file, flush, discard]);
    let first = Record {
        class: 63,
        flags: Flags::AHEAD,
        ..r(0, Op::Read, 1, 2)
    };
    let flags = Flags::FUA.with(Flags::META, true);
    let second = Record {
        flags,
        file_size: Some(99),
        latency_ns: Some(7),
        device: 1,
        ..r(4, Op::Write, 0, 4096)
    };
    assert_eq!(sample(Format::Csv), [first, second]);
}

#[test]
fn requests_of_an_events_file() {
    let bytes = common::events();
    assert_eq!(sniff(&bytes), Some(Format::Events));
    let (_dir, path) = file(&bytes);
    let read = Record {
        class: 5,
        latency_ns: Some(3_000),
        ..r(0, Op::Read, 7 * 4096, 512)
    };
    let write = Record {
        class: 63,
        flags: Flags::FUA,
        latency_ns: Some(0),
        ..r(500, Op::Write, 8 * 4096, 512)
    };
    // It was never answered, so there is no latency.
    let flush = r(3_000, Op::Flush, 9 * 4096, 0);
    assert_eq!(all(&path, &Options::default()), [read, write, flush]);
    assert_eq!(
        info(&path, &Options::default()).expect("sound").format,
        "isotherm-events"
    );
}
