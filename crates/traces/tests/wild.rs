//! Traces as they are in circulation: with other units than the format's, in parts, with other compressors, with text in between.

mod common;

use std::fmt::Write as _;
use std::io::Write as _;

use common::{BLKTRACE_QUEUE_WRITE_FUA, blktrace_event};
use isotherm_traces::{Format, Op, Options, Record, Sure, TimeUnit, TraceError, info, open};

fn written(name: &str, content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(name);
    std::fs::write(&path, content).expect("writing the trace");
    (dir, path)
}

fn read(content: &[u8], options: &Options) -> (Format, Sure, Vec<String>, Vec<Record>) {
    let (_dir, path) = written("trace", content);
    let reader = open(&path, options).expect("a trace");
    let head = (reader.format(), reader.sure(), reader.assumed().to_vec());
    let records = reader.map(|r| r.expect("a record")).collect();
    (head.0, head.1, head.2, records)
}

/// Requests in a burst, then a pause: gaps of 3 to 900 units and some long ones.
fn times(n: u64) -> impl Iterator<Item = u64> {
    (0..n).scan(7u64, |t, i| {
        *t += if i % 8 == 0 {
            40_003
        } else {
            3 + (i * 131) % 897
        };
        Some(*t)
    })
}

#[test]
fn five_columns_in_bytes_are_not_taken_for_sectors() {
    let mut text = String::new();
    for (i, t) in times(100).enumerate() {
        let (at, size) = (i as u64 * 8192, 4096 + 512 * (i as u64 % 4));
        writeln!(text, "{t}.25 0 {at} {size} {}", i % 2).expect("writing text");
    }
    let (format, sure, assumed, records) = read(text.as_bytes(), &Options::default());
    assert_eq!(
        (format, sure),
        (Format::Replay, Sure::Likely),
        "{assumed:?}"
    );
    assert_eq!(
        (records[3].offset, records[3].len),
        (3 * 8192, 4096 + 3 * 512)
    );
    assert!(assumed[0].contains("count bytes"), "{assumed:?}");
    // A user who knows the unit can state it.
    let options = Options {
        format: Some(Format::DiskSim),
        ..Options::default()
    };
    assert_eq!(read(text.as_bytes(), &options).3[1].offset, 8192 * 512);
}

#[test]
fn sizes_in_pages_beside_addresses_in_sectors() {
    let (mut text, mut at) = (String::new(), 800);
    for (i, t) in times(64).enumerate() {
        let pages = 1 + i as u64 % 3;
        writeln!(text, "{t} 1 {at} {pages} 0").expect("writing text");
        at += pages * 8;
    }
    let (format, _, assumed, records) = read(text.as_bytes(), &Options::default());
    assert_eq!(format, Format::DiskSimPages, "{assumed:?}");
    assert_eq!((records[1].offset, records[1].len), (808 * 512, 8192));
    // So do those of which a third are single sectors.
    let some = times(90)
        .enumerate()
        .map(|(i, t)| format!("{t} 0 {} {} 0\n", i * 880, [1, 8, 16][i % 3]))
        .collect::<Vec<_>>()
        .concat();
    assert_eq!(
        read(some.as_bytes(), &Options::default()).0,
        Format::DiskSim
    );
    // Aligned requests whose sizes are sectors keep their unit.
    let plain = "1 0 8 8 1\n500 0 16 8 1\n902 0 64 16 0\n".repeat(10);
    assert_eq!(
        read(plain.as_bytes(), &Options::default()).0,
        Format::DiskSim
    );
}

#[test]
fn the_unit_of_time_is_weighed() {
    let lines = |unit: u64, odd: u64| {
        let mut text = String::new();
        for (i, t) in times(200).enumerate() {
            writeln!(
                text,
                "{} 0 {} 8 1",
                t * unit + odd * (i as u64 % 7),
                i * 24 + 1
            )
            .expect("writing text");
        }
        text
    };
    let span = |text: &str, options: &Options| {
        let (_, _, assumed, records) = read(text.as_bytes(), options);
        (records.last().expect("records").time.0, assumed)
    };
    let (us, said) = span(&lines(1, 0), &Options::default());
    assert!(said.iter().any(|s| s.contains("microseconds")), "{said:?}");
    // The same requests with times in nanoseconds take equally long, although no number is a multiple of 1 000.
    let (ns, said) = span(&lines(1_000, 1), &Options::default());
    assert!(said.iter().any(|s| s.contains("nanoseconds")), "{said:?}");
    assert_eq!(us / 1_000_000, ns / 1_000_000);
    let seconds = Options {
        trace_unit: Some(TimeUnit::Seconds),
        ..Options::default()
    };
    assert_eq!(span(&lines(1, 0), &seconds).0, us * 1_000_000);
}

#[test]
fn a_unit_that_no_disk_could_follow_is_not_believed() {
    let span = |text: &str| {
        let (_, _, assumed, records) = read(text.as_bytes(), &Options::default());
        (records.last().expect("records").time.as_secs_f64(), assumed)
    };
    // An idle server with times in microseconds: a request about every 30 ms, no two within a millisecond.
    let idle = (0..400u64)
        .map(|i| format!("{} 0 {} 8 1\n", i * 30_011 + i % 7, i * 24 + 1))
        .collect::<Vec<_>>()
        .concat();
    let (seconds, said) = span(&idle);
    assert!((11.9..12.1).contains(&seconds), "{seconds} {said:?}");
    assert!(said.iter().any(|s| s.contains("microseconds")), "{said:?}");
    // Seconds with a decimal point, not DiskSim's milliseconds.
    let points = (0..400u64)
        .map(|i| format!("{:.6} 0 {} 8 1\n", i as f64 * 0.011, i * 24 + 1))
        .collect::<Vec<_>>()
        .concat();
    let (seconds, said) = span(&points);
    assert!((4.3..4.5).contains(&seconds), "{seconds} {said:?}");
    assert!(said.iter().any(|s| s.contains("20 000")), "{said:?}");
}

#[test]
fn an_event_before_the_beginning_does_not_make_forty_years() {
    let text = "8,0 0 1 1266874889.709551000 1 Q R 8 + 8 [a]\n8,0 0 2 0.000001000 1 Q R 16 + 8 [a]\n\
                8,0 0 3 780.500000000 1 Q W 24 + 8 [a]\n";
    let records = read(text.as_bytes(), &Options::default()).3;
    assert_eq!(records.last().expect("records").time.0, 780_500_000_000);
}

#[test]
fn one_processors_file_says_so_and_a_folder_is_read_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let event =
        |time, sector| blktrace_event(false, BLKTRACE_QUEUE_WRITE_FUA, time, sector, 4096, b"");
    for (cpu, events) in [
        [event(1_000, 8), event(5_000, 40)],
        [event(3_000, 16), event(9_000, 64)],
    ]
    .iter()
    .enumerate()
    {
        std::fs::write(
            dir.path().join(format!("sda.blktrace.{cpu}")),
            events.concat(),
        )
        .expect("writing");
    }
    let part = open(dir.path().join("sda.blktrace.1"), &Options::default()).expect("a part");
    assert_eq!(part.sure(), Sure::Guess);
    assert!(part.assumed()[0].contains("1 more"), "{:?}", part.assumed());
    let (_alone, path) = written("sdc.blktrace.3", &event(1, 8));
    let alone = open(&path, &Options::default()).expect("a part");
    assert_eq!(alone.sure(), Sure::Likely);
    assert!(
        alone.assumed()[0].contains("one processor"),
        "{:?}",
        alone.assumed()
    );
    let whole = open(dir.path(), &Options::default()).expect("a folder");
    let places: Vec<u64> = whole.map(|r| r.expect("a record").offset / 512).collect();
    assert_eq!(places, [8, 16, 40, 64]);
    std::fs::write(dir.path().join("sdb.blktrace.0"), event(1, 8)).expect("writing");
    let two = open(dir.path(), &Options::default())
        .expect_err("two traces")
        .to_string();
    assert!(two.contains("sda") && two.contains("sdb"), "{two}");
    let empty = tempfile::tempdir().expect("a directory");
    assert!(open(empty.path(), &Options::default()).is_err());
}

#[test]
fn bzip2_and_xz_are_read_also_in_several_streams() {
    let lines = [
        "3,20,4096,w,0.000001\n".repeat(50),
        "0,20,512,R,1.5\n".repeat(50),
    ];
    let mut bz = Vec::new();
    let mut xz = Vec::new();
    for part in &lines {
        let mut one = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        one.write_all(part.as_bytes()).expect("compressing");
        bz.extend(one.finish().expect("compressing"));
        let mut one = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1))
            .expect("xz");
        one.write_all(part.as_bytes()).expect("compressing");
        xz.extend(one.finish().expect("compressing"));
    }
    for compressed in [bz, xz] {
        let (format, _, _, records) = read(&compressed, &Options::default());
        assert_eq!((format, records.len()), (Format::Spc, 100));
        // A truncated file is an error, not a shorter trace.
        let (_dir, path) = written("cut", &compressed[..compressed.len() - 20]);
        let failed = match open(&path, &Options::default()) {
            Ok(mut reader) => reader.find_map(Result::err),
            Err(e) => Some(e),
        };
        assert!(
            matches!(failed, Some(TraceError::Read { .. })),
            "{failed:?}"
        );
    }
}

#[test]
fn text_between_records_is_skipped_and_counted() {
    let part = "A licence\n\nstart ; sector; length ; op ;  replay_delay=0 ; replay_duration=0\n0.5 ; 8 ; 16 ; W ; 0.0 ; 0.0\n";
    let (_dir, path) = written("joined.load", part.repeat(2).as_bytes());
    let mut reader = open(&path, &Options::default()).expect("a trace");
    assert_eq!(reader.by_ref().flatten().count(), 2);
    assert_eq!(reader.stats().other_events, 2);
}

#[test]
fn columns_are_named_by_place_or_by_the_first_line() {
    let by = |columns: &str| Options {
        columns: Some(columns.parse().expect("columns")),
        ..Options::default()
    };
    let text = "when;disk;what;start;bytes;took\n0.5;a;write;8;4096;12\n1.25;b;R;16;512;3\n";
    let by_place = read(
        text.as_bytes(),
        &by("time_s,device,op,offset_sectors,length_bytes,latency_us"),
    )
    .3;
    let by_name = read(
        text.as_bytes(),
        &by(
            "length_bytes=bytes,offset_sectors=start,time_s=when,op=what,device=disk,latency_us=took",
        ),
    );
    assert_eq!(by_place, by_name.3);
    assert_eq!((by_name.0, by_name.1), (Format::Columns, Sure::Certain));
    let second = by_place[1];
    assert_eq!(
        (second.time.0, second.device, second.op),
        (750_000_000, 1, Op::Read)
    );
    assert_eq!(
        (second.offset, second.len, second.latency_ns),
        (16 * 512, 512, Some(3_000))
    );
    // Blanks, no header line, numbers for directions, no time.
    let bare = read(b"7 1 3\n9 0 1\n", &by("offset_4k,op_read1,length_4k")).3;
    assert_eq!((bare[0].op, bare[1].op), (Op::Read, Op::Write));
    assert_eq!(
        (bare[0].offset, bare[0].len, bare[1].time.0),
        (7 * 4096, 3 * 4096, 1_000_000)
    );
    for wrong in [
        "offset_bytes",
        "length_4k,offset_4k,time_s,time_us",
        "offset_4k,length_4k,colour",
        "offset_4k=a,length_4k",
    ] {
        assert!(
            wrong.parse::<isotherm_traces::ColumnMap>().is_err(),
            "{wrong}"
        );
    }
    let (_dir, path) = written("short", b"7 1 3\n9 0\n");
    let failed = open(&path, &by("offset_4k,op_read1,length_4k"))
        .expect("opened")
        .find_map(Result::err);
    let failed = failed.expect("a line too short").to_string();
    assert!(
        failed.contains("line 2") && failed.contains("length_4k"),
        "{failed}"
    );
}

#[test]
fn what_no_format_reads_names_the_nearest() {
    let text = "128166385295514663,hm,0,Write,9056014336,2048,2833\n".to_owned()
        + &"128166385295514663,hm,0,Wrote,1,2\n".repeat(5);
    let (_dir, path) = written("almost", text.as_bytes());
    let failed = open(&path, &Options::default())
        .expect_err("no format")
        .to_string();
    assert!(
        failed.contains("nearest is msr") && failed.contains("line 2") && failed.contains("Wrote"),
        "{failed}"
    );
}

#[test]
fn what_no_format_reads_gets_an_example_of_columns() {
    for (text, columns) in [
        (
            "0.1,R,4096,4096\n0.2,W,8192,4096\n",
            "time,op,offset_bytes,length_bytes",
        ),
        (
            "at;host;pos;len;kind\n17;db1;4096;512;read\n",
            "time,-,offset_bytes,length_bytes,op",
        ),
        ("W 4096 512\nR 8192 512\n", "op,offset_bytes,length_bytes"),
    ] {
        let (_dir, path) = written("own", text.as_bytes());
        let failed = open(&path, &Options::default()).expect_err("no format");
        assert!(
            failed
                .to_string()
                .contains(&format!("`--columns {columns}`")),
            "{failed}"
        );
        let columns = Options {
            columns: Some(columns.parse().expect(columns)),
            ..Options::default()
        };
        let records = open(&path, &columns).expect("a reader").count();
        assert!(records > 0, "{text}");
    }
    let (_dir, path) = written("prose", b"A page about\nstorage.\n");
    let failed = open(&path, &Options::default()).expect_err("no format");
    assert!(!failed.to_string().contains("--columns time"), "{failed}");
}

#[test]
fn what_no_device_does_is_doubted() {
    let mut fast = String::new();
    for i in 0..2_000u64 {
        writeln!(fast, "{} 0 {} 4096 1", 7 + i * 3, (i + 1) * 3).expect("writing text");
    }
    let (_dir, path) = written("fast", fast.as_bytes());
    let found = info(&path, &Options::default()).expect("figures");
    let all = found.doubts.join("\n");
    assert!(
        all.contains("requests a second") && all.contains("mean request"),
        "{all}"
    );
    let (_dir, path) = written("sound", b"1 0 8 16 1\n90000 0 8 16 1\n");
    assert!(
        info(&path, &Options::default())
            .expect("figures")
            .doubts
            .is_empty()
    );
}
