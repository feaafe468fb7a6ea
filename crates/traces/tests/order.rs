//! The order of time: sorted within a window, cut, merged.

mod common;

use std::fmt::Write as _;

use isotherm_core::Nanos;
use isotherm_core::random::SplitMix64;
use isotherm_traces::{
    Format, Options, Pick, Record, Sure, WriteOptions, convert, copy, info, open, open_from_zero,
    open_merged,
};

fn written(dir: &tempfile::TempDir, name: &str, content: &str) -> std::path::PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, content).expect("writing the trace");
    path
}

fn records(path: &std::path::Path, options: &Options) -> Vec<Record> {
    let reader = open(path, options).expect("a trace");
    reader.map(|r| r.expect("a record")).collect()
}

/// Requests of SYSTOR's form in the order of completion: arrival and latency in microseconds, sorted by their sum.
fn completed(n: u64, slow: u64, seed: u64) -> (String, Vec<(u64, u64)>) {
    let mut r = SplitMix64::new(seed);
    let mut all: Vec<(u64, u64)> = (0..n)
        .map(|i| (i * 100 + r.below(90), 1 + r.below(slow)))
        .collect();
    let arrivals = all.clone();
    all.sort_by_key(|(at, took)| at + took);
    let mut text = "Timestamp,Response,IOType,LUN,Offset,Size\n".to_owned();
    for (at, took) in all {
        let lun = at % 3;
        writeln!(
            text,
            "{}.{:06},0.{took:06},R,{lun},{},4096",
            at / 1_000_000,
            at % 1_000_000,
            at * 512
        )
        .expect("writing text");
    }
    (text, arrivals)
}

#[test]
fn records_in_order_of_completion_are_sorted() {
    let dir = tempfile::tempdir().expect("a directory");
    for seed in 0..10 {
        let (text, arrivals) = completed(5_000, 40_000, seed);
        let path = written(&dir, "t", &text);
        let found = info(&path, &Options::default()).expect("figures");
        assert!(found.reader.sorted > 1_000 && found.reader.time_went_back == 0);
        assert!(
            found.doubts.iter().all(|d| !d.contains("smaller than")),
            "{:?}",
            found.doubts
        );
        let sorted = records(&path, &Options::default());
        let first = arrivals[0].0;
        let got: Vec<(u64, u64)> = sorted
            .iter()
            .map(|r| (r.time.0 / 1_000 + first, r.latency_ns.unwrap_or(0) / 1_000))
            .collect();
        assert_eq!(got, arrivals, "{seed}");
        assert!(got.iter().zip(&sorted).all(|(t, r)| r.offset == t.0 * 512));
        // Devices are numbered as they are met, with their own names.
        let mut reader = open(&path, &Options::default()).expect("a trace");
        let r = reader.next().expect("one").expect("a record");
        assert_eq!(
            (r.device, reader.device_name(0)),
            (0, Some((r.offset / 512 % 3).to_string()))
        );
    }
}

/// blkparse may print the events of one processor after those of another.
#[test]
fn records_of_one_processor_after_another_are_sorted() {
    let dir = tempfile::tempdir().expect("a directory");
    let line = |i: u64| {
        let (s, ns) = (i / 100, i % 100 * 10_000_000);
        format!("8,0 {} {i} {s}.{ns:09} 7 Q R {} + 8 [x]\n", i % 4, i * 8)
    };
    let by_processor = (0..4).flat_map(|cpu| (cpu..2_000).step_by(4).map(line));
    let text = by_processor.collect::<Vec<_>>().concat();
    let path = written(&dir, "t", &text);
    let found = info(&path, &Options::default()).expect("figures");
    let (sorted, back) = (found.reader.sorted, found.reader.time_went_back);
    assert!(sorted >= 1_400 && back == 0, "{sorted} {back}");
    let all = records(&path, &Options::default());
    let in_order = |(i, r): (usize, &Record)| {
        r.offset == i as u64 * 4096 && r.time == Nanos::from_millis(i as u64 * 10)
    };
    assert!(all.len() == 2_000 && all.iter().enumerate().all(in_order));
}

#[test]
fn what_is_later_than_the_window_is_raised_and_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let (text, _) = completed(3_000, 200_000, 1);
    let path = written(&dir, "t", &text);
    let narrow = Options {
        sort_window: Some(10),
        ..Options::default()
    };
    let found = info(&path, &narrow).expect("figures");
    assert!(found.reader.sorted > 0 && found.reader.time_went_back > 0);
    let times: Vec<Nanos> = records(&path, &narrow).iter().map(|r| r.time).collect();
    assert!(times.is_sorted() && times.len() == 3_000);
    // Another format is sorted if that is asked for, and not else.
    let spc = (0..512)
        .map(|i| format!("0,{},512,r,{}.5\n", i, i ^ 7))
        .collect::<Vec<_>>()
        .concat();
    let path = written(&dir, "spc", &spc);
    let raised = info(&path, &Options::default()).expect("figures");
    let asked = Options {
        sort_window: Some(64),
        ..Options::default()
    };
    let sorted = info(&path, &asked).expect("figures");
    assert!(raised.reader.time_went_back > 0 && raised.reader.sorted == 0);
    assert!(sorted.reader.time_went_back == 0 && sorted.reader.sorted > 0);
    assert_eq!(sorted.duration_s, Some(511.0));
}

/// The duration is that of what is replayed, also if the first record is not the earliest.
#[test]
fn the_duration_is_the_span_that_is_replayed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = written(
        &dir,
        "t",
        "0,8,512,r,100.0\n0,8,512,r,1.0\n0,16,512,w,103.5\n",
    );
    let found = info(&path, &Options::default()).expect("figures");
    let last = records(&path, &Options::default())
        .last()
        .expect("a record")
        .time;
    assert_eq!((found.duration_s, last), (Some(3.5), Nanos(3_500_000_000)));
}

#[test]
fn a_bad_record_is_an_error_after_the_sorted_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let (text, _) = completed(100, 4_000, 2);
    let path = written(&dir, "t", &(text + "nonsense\n"));
    let all: Vec<_> = open(&path, &Options::default()).expect("a trace").collect();
    assert_eq!(all.len(), 101);
    let good: Vec<Nanos> = all.iter().flatten().map(|r| r.time).collect();
    assert!(good.len() == 100 && good.is_sorted() && all[100].is_err());
}

#[test]
fn a_part_of_the_time_and_one_of_many_are_cut() {
    let dir = tempfile::tempdir().expect("a directory");
    let spc = (0..1_000)
        .map(|i| format!("{},{i},512,r,{}.5\n", i % 2, i + 40))
        .collect::<Vec<_>>()
        .concat();
    let path = written(&dir, "spc", &spc);
    let read = Options::default();
    let cut = |name: &str, pick: &Pick, format| {
        let out = dir.path().join(name);
        let written = copy(
            &|| open(&path, &read),
            pick,
            &out,
            &WriteOptions::new(format),
        );
        written.map(|w| (w, records(&out, &Options::default())))
    };
    let all = Pick::default();
    let part = Pick {
        from: Nanos::from_secs(100),
        to: Nanos::from_secs(300),
        every: 3,
    };
    for format in [Format::Parquet, Format::Csv, Format::Blkreplay] {
        let (w, got) = cut(&format!("part-{format}"), &part, format).expect("cut");
        let sectors: Vec<u64> = got.iter().map(|r| r.offset / 512 % (4 << 11)).collect();
        assert_eq!((w.requests, got.len()), (67, 67), "{format}");
        assert_eq!(
            sectors,
            (100..300).step_by(3).collect::<Vec<u64>>(),
            "{format}"
        );
        assert_eq!(
            (got[0].time, got[66].time),
            (Nanos(0), Nanos::from_secs(198))
        );
    }
    let (w, got) = cut("all", &all, Format::Parquet).expect("copied");
    assert_eq!((w.requests, got), (1_000, records(&path, &read)));
    let list = written(
        &dir,
        "blocks",
        &(0..50)
            .map(|i| format!("{}\n", i * 7))
            .collect::<Vec<_>>()
            .concat(),
    );
    let out = dir.path().join("x");
    let timeless = copy(
        &|| open(&list, &read),
        &part,
        &out,
        &WriteOptions::new(Format::Csv),
    );
    assert!(
        timeless
            .expect_err("no times")
            .to_string()
            .contains("no times")
            && !out.exists()
    );
}

#[test]
fn traces_merge_by_their_clock_or_from_zero() {
    let dir = tempfile::tempdir().expect("a directory");
    let msr = |disk: u64, from: u64| -> String {
        (0..200)
            .map(|i| {
                format!(
                    "{},hm,{disk},Read,{},512,9\n",
                    128_166_385_295_514_663 + from + i * 70_001,
                    i * 4096
                )
            })
            .collect::<Vec<_>>()
            .concat()
    };
    let (a, b) = (
        written(&dir, "a", &msr(0, 0)),
        written(&dir, "b", &msr(1, 30_000)),
    );
    let read = Options::default();
    let both: Vec<Record> = open_merged(&[&a, &b], &read)
        .expect("merged")
        .map(|r| r.expect("a record"))
        .collect();
    assert_eq!(both.len(), 400);
    assert!(
        both.iter()
            .enumerate()
            .all(|(i, r)| r.device as usize == i % 2)
    );
    assert_eq!(both[1].time.0, 3_000_000);
    let spc = written(&dir, "c", "7,8,512,w,900.0\n7,8,512,w,900.001\n");
    let mut merged = open_from_zero(&[&a, &spc], &read).expect("merged");
    let all: Vec<Record> = merged.by_ref().map(|r| r.expect("a record")).collect();
    assert_eq!((all.len(), all[1].device, all[1].time), (202, 1, Nanos(0)));
    assert_eq!(merged.device_name(1).as_deref(), Some("1:c:7"));
    let list = written(&dir, "blocks", "1\n2\n3\n");
    assert!(open_from_zero(&[&a, &list], &read).is_err());
}

/// The copy of a trace that was read with assumptions says so, in every format that has room for it, and again in a copy of the copy.
#[test]
fn a_copy_remembers_what_was_assumed() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = (0..200_u64)
        .map(|i| format!("{} {} {}\n", 17 + i * 7, i * i * 4096, 4096 + 512 * (i % 3)))
        .collect::<Vec<_>>()
        .concat();
    let path = written(&dir, "own", &text);
    let columns = Options {
        columns: Some("time,offset,length".parse().expect("columns")),
        ..Options::default()
    };
    let mut from = (path, columns);
    for (n, format) in [
        Format::Csv,
        Format::Parquet,
        Format::Blkreplay,
        Format::Parquet,
        Format::Csv,
    ]
    .into_iter()
    .enumerate()
    {
        let original = open(&from.0, &from.1).expect("a trace");
        assert_eq!(original.sure(), Sure::Guess);
        let out = dir.path().join(format!("copy{n}"));
        let w = convert(&from.0, &from.1, &out, format).expect("converted");
        assert_eq!(
            (&w.assumed[..], &w.doubts[..]),
            (original.assumed(), original.doubts())
        );
        let again = open(&out, &Options::default()).expect("a copy");
        assert_eq!((again.format(), again.sure()), (format, Sure::Guess));
        let same = |a: &[String], b: &[String]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| b.ends_with(a.as_str()))
        };
        assert!(
            same(original.assumed(), again.assumed()),
            "{:?}",
            again.assumed()
        );
        assert!(
            same(original.doubts(), again.doubts()),
            "{:?}",
            again.doubts()
        );
        from = (out, Options::default());
    }
    assert_eq!(records(&from.0, &from.1).len(), 200);
    let fio = convert(&from.0, &from.1, dir.path().join("fio"), Format::FioV3).expect("converted");
    assert!(fio.lost.contains("assumptions"), "{:?}", fio.lost);
    // Where nothing was assumed, nothing is added.
    let spc = written(&dir, "spc", "0,8,512,r,1.0\n0,16,512,w,2.0\n");
    convert(
        &spc,
        &Options::default(),
        dir.path().join("plain"),
        Format::Csv,
    )
    .expect("converted");
    let plain = std::fs::read_to_string(dir.path().join("plain")).expect("text");
    assert!(plain.starts_with("time_ns,"), "{plain}");
}
