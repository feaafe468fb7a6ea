//! Texts and lists as other programs write them: biosnoop, iosnoop, bpftrace, Windows Performance Analyzer, libCacheSim, spreadsheets in
//! other languages; and binary files.

mod common;

use std::fmt::Write as _;

use common::{BLKTRACE_QUEUE_WRITE_FUA, blktrace_event, columns, read, written};
use isotherm_core::random::SplitMix64;
use isotherm_traces::{ColumnMap, Format, Op, Options, Record, Sure, info, open};

/// `(arrival us, latency us, write, sector, bytes)`, made up.
fn made(n: u64, seed: u64) -> Vec<(u64, u64, bool, u64, u32)> {
    let mut r = SplitMix64::new(seed);
    let one = |i| {
        let bytes = 512 * (1 + r.below(64));
        (
            i * 500 + r.below(400),
            10 + r.below(3_000),
            r.below(2) > 0,
            r.below(1 << 30),
            bytes as u32,
        )
    };
    (0..n).map(one).collect()
}

fn same(records: &[Record], made: &[(u64, u64, bool, u64, u32)], timed: bool) {
    assert_eq!(records.len(), made.len());
    let first = made.iter().map(|m| m.0).min().unwrap_or(0);
    for (r, &(at, took, write, sector, bytes)) in records.iter().zip(made) {
        let op = if write { Op::Write } else { Op::Read };
        assert_eq!((r.op, r.offset, r.len), (op, sector * 512, bytes));
        assert_eq!(r.latency_ns, Some(took * 1_000));
        assert!(!timed || r.time.0 == (at - first) * 1_000, "{r:?}");
    }
}

/// biosnoop prints a request when it completes, after a line of its own, and the name of a program may have blanks.
#[test]
fn biosnoop_is_read_as_it_prints() {
    let all = made(300, 1);
    let mut lines = all.clone();
    lines.sort_by_key(|m| m.0 + m.1);
    let mut text = "Tracing block device I/O... Hit Ctrl-C to end.\nTIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n".to_owned();
    for (i, (at, took, write, sector, bytes)) in lines.into_iter().enumerate() {
        let (name, letter) = (
            ["jbd2/x", "Web Content", "a b c"][i % 3],
            if write { 'W' } else { 'R' },
        );
        let done = at + took;
        writeln!(
            text,
            "{}.{:06}    {name:14} {}    nvme0n1   {letter} {sector:10} {bytes:6} {:7.3}",
            done / 1_000_000,
            done % 1_000_000,
            1_000 + i,
            took as f64 / 1_000.0
        )
        .expect("writing text");
    }
    let (found, records) = read((text + "^C\n").as_bytes(), &Options::default());
    assert_eq!(
        (found.format.as_str(), found.sure),
        ("biosnoop", Sure::Certain)
    );
    assert!(
        found.reader.sorted > 0 && found.doubts.is_empty(),
        "{:?}",
        found.doubts
    );
    same(&records, &all, true);
}

/// iosnoop's device is `major,minor`: that comma separates no columns, with a line of names or without.
#[test]
fn a_comma_in_a_field_separates_no_columns() {
    let all = made(40, 2);
    let row = |m: &(u64, u64, bool, u64, u32)| {
        let letter = if m.2 { "WS" } else { "RM" };
        format!(
            "supervise    1809   {letter:4} 259,0    {:10} {:8} {:9.3}\n",
            m.3,
            m.4,
            m.1 as f64 / 1_000.0
        )
    };
    let rows = all.iter().map(row).collect::<Vec<_>>().concat();
    let named = format!(
        "Tracing block I/O. Ctrl-C to end.\nCOMM         PID    TYPE DEV      BLOCK        BYTES     LATms\n{rows}"
    );
    let (found, records) = read(named.as_bytes(), &Options::default());
    assert_eq!((found.format.as_str(), found.duration_s), ("iosnoop", None));
    same(&records, &all, false);
    let by = columns("-,-,op,device,offset_sectors,length_bytes,latency_ms");
    same(&read(rows.as_bytes(), &by).1, &all, false);
    let (_dir, path) = written(rows.as_bytes());
    let said = open(&path, &Options::default())
        .expect_err("no names")
        .to_string();
    assert!(
        said.contains("-,-,op,device,offset_sectors,length_bytes"),
        "{said}"
    );
}

#[test]
fn windows_performance_analyzer_s_table_is_read() {
    let all = made(200, 3);
    let grouped = |n: u64| {
        let digits = n.to_string();
        let groups: Vec<&str> = digits
            .as_bytes()
            .rchunks(3)
            .rev()
            .map(|g| std::str::from_utf8(g).expect("digits"))
            .collect();
        format!("\"{}\"", groups.join(","))
    };
    let mut text = "Line #,Process,Disk,IO Type,Init Time (s),Complete Time (s),IO Time (\u{b5}s),Size (B),Min Offset,Path Name\r\n".to_owned();
    for (i, (at, took, write, sector, bytes)) in all.iter().enumerate() {
        let kind = if *write { "Write" } else { "Read" };
        let s = |us: u64| format!("{}.{:06}000", us / 1_000_000, us % 1_000_000);
        let (begun, done) = (s(*at), s(at + took));
        writeln!(
            text,
            "{i},\"svc, host.exe (4)\",0,{kind},{begun},{done},{},{},{},\"C:\\a,b\"\r",
            grouped(*took),
            grouped(u64::from(*bytes)),
            grouped(sector * 512)
        )
        .expect("writing text");
    }
    text += "999,System (4),0,Flush,9.0,9.1,1,0,0,\r\n";
    let (found, mut records) = read(text.as_bytes(), &Options::default());
    assert_eq!((found.format.as_str(), found.flushes), ("wpa", 1));
    records.retain(|r| r.op != Op::Flush);
    same(&records, &all, true);
}

#[test]
fn csv_of_libcachesim_is_read() {
    let commands =
        "version,time,op,size,lbn\n1,100,2a,512,1001\n1,100,28,4096,2003\n1,102,8a,512,7\n";
    let (found, records) = read(commands.as_bytes(), &Options::default());
    assert_eq!(
        (found.format.as_str(), found.writes, found.duration_s),
        ("libcachesim", 2, Some(2.0))
    );
    assert_eq!(
        (records[1].op, records[1].offset, records[1].len),
        (Op::Read, 2003 * 512, 4096)
    );
    let (mut objects, mut at) = ("time,obj_id,obj_size\n".to_owned(), 1_234_567);
    for i in 0..90 {
        writeln!(objects, "{},{at},{}", 5 + i / 9, 512 * (1 + i % 3)).expect("writing text");
        at = if i % 4 == 0 {
            at * 7 % 99_991
        } else {
            at + 1 + i % 3
        };
    }
    let (found, records) = read(objects.as_bytes(), &Options::default());
    assert_eq!(records[0].offset, 1_234_567 * 512, "{:?}", found.assumed);
    assert!(
        found
            .assumed
            .iter()
            .any(|s| s.contains("all are taken as reads"))
    );
}

#[test]
fn numbers_are_read_as_programs_write_them() {
    let plain = read(
        b"1500 8192 4096 R\n2000 4096 512 W\n",
        &columns("time_us,offset_bytes,length_bytes,op"),
    )
    .1;
    for (text, map) in [
        (
            "0x5dc 0x2000 0x1000 R\n0x7d0 0x1000 0x200 W\n",
            "time_us,offset_bytes,length_bytes,op",
        ),
        (
            "1,5;8192;4096;R\n2,0;4096;512;W\n",
            "time_ms,offset_bytes,length_bytes,op",
        ),
        (
            "0,0015\t8192\t4096.0\tR\n0,002\t4096\t512.0\tW\n",
            "time_s,offset_bytes,length_bytes,op",
        ),
        (
            "\"1,500\",\"8,192\",\"4,096\",R\n\"2,000\",\"4,096\",512,W\n",
            "time_us,offset_bytes,length_bytes,op",
        ),
        // Dates and times of day, in one column or two.
        (
            "2001-09-09T01:46:40.0015Z,8192,4096,R\n2001-09-09 01:46:40.002,4096,512,W\n",
            "time_s,offset_bytes,length_bytes,op",
        ),
        (
            "2001-09-09 01:46:40,0015 8192 4096 R\n2001-09-09 01:46:40,002 4096 512 W\n",
            "time_s,plus_s,offset_bytes,length_bytes,op",
        ),
        // Two columns of one time.
        (
            "0 1500 8192 4096 R\n0 2000 4096 512 W\n",
            "time_s,plus_us,offset_bytes,length_bytes,op",
        ),
        (
            "Attaching 2 probes...\n1500 8192 4096 R\n2000 4096 512 W\n^C\n\n@n: 2\n",
            "time_us,offset_bytes,length_bytes,op",
        ),
    ] {
        assert_eq!(read(text.as_bytes(), &columns(map)).1, plain, "{text}");
    }
}

#[test]
fn completion_direction_and_separator_are_named() {
    let done = read(
        b"10 40 8192 4096\n20 25 0 512\n",
        &columns("time_us,done_us,offset_bytes,length_bytes,op=W"),
    )
    .1;
    assert_eq!(
        (done[0].latency_ns, done[1].latency_ns, done[1].op),
        (Some(30_000), Some(5_000), Op::Write)
    );
    let map: ColumnMap = "time_us,op,offset_bytes,length_bytes"
        .parse()
        .expect("columns");
    for (text, separator) in [
        ("5:R:0:512\n6:W:512:512\n", b':'),
        ("5,R,0,512\n6,W,512,512\n", b','),
        ("5 R 0 512\n6  W 512 512\n", b' '),
    ] {
        let by = Options {
            columns: Some(map.clone().separated_by(separator)),
            ..Options::default()
        };
        assert_eq!(read(text.as_bytes(), &by).1.len(), 2, "{text}");
    }
    for wrong in [
        "plus_us,offset_4k,length_4k",
        "op,offset_4k,length_4k,op=W",
        "time_s,time_us,offset_4k,length_4k",
    ] {
        assert!(wrong.parse::<ColumnMap>().is_err(), "{wrong}");
    }
    for text in [
        "time_s,op,offset,length",
        "time=a b,offset_4k=c,length_4k=d",
        "offset_4k,length_4k,op=write",
    ] {
        assert_eq!(text.parse::<ColumnMap>().expect(text).to_string(), text);
    }
}

#[test]
fn binary_lists_of_blocks_are_read_when_they_are_named() {
    let numbers: Vec<u64> = (0..500).map(|i| i * i % 977).collect();
    let wide: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let narrow: Vec<u8> = numbers
        .iter()
        .flat_map(|n| (*n as u32).to_le_bytes())
        .collect();
    for (bytes, format) in [(wide, Format::Blocks64), (narrow, Format::Blocks32)] {
        let named = Options {
            format: Some(format),
            ..Options::default()
        };
        let (found, records) = read(&bytes, &named);
        let blocks: Vec<u64> = records.iter().map(|r| r.offset / 4096).collect();
        assert_eq!(
            (blocks, found.duration_s, found.writes),
            (numbers.clone(), None, 0)
        );
        let (_dir, path) = written(&bytes);
        let said = open(&path, &Options::default())
            .expect_err("no format")
            .to_string();
        assert!(said.contains("--format blocks-u32"), "{said}");
    }
}

/// A message of OCTF: a header with a serial number and a time, and a body.
fn octf(n: u64) -> Vec<u8> {
    let varint = |mut n: u64| {
        let mut out = Vec::new();
        while n > 127 {
            out.push(n as u8 | 128);
            n >>= 7;
        }
        out.push(n as u8);
        out
    };
    let serial = if n > 0 {
        [vec![0x08], varint(n)].concat()
    } else {
        Vec::new()
    };
    let header = [serial, vec![0x10], varint(1_000_000_000_000 + n * 977)].concat();
    let body = [0x1a, 0x08, 0x08, 0x80, 0x20, 0x10, 0x08, 0x28, 0x01, 0x30];
    let message = [vec![0x0a, header.len() as u8], header, body.to_vec()].concat();
    [varint(message.len() as u64), message].concat()
}

#[test]
fn binary_traces_of_open_cas_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let content: Vec<u8> = (0..300).flat_map(octf).collect();
    for name in ["octf.trace.0", "renamed"] {
        let path = dir.path().join(name);
        std::fs::write(&path, &content).expect("writing");
        let said = open(&path, &Options::default())
            .expect_err("binary")
            .to_string();
        assert!(
            said.contains("Open CAS") && said.contains("--format csv"),
            "{said}"
        );
    }
    let said = open(dir.path(), &Options::default())
        .expect_err("a folder")
        .to_string();
    assert!(said.contains("Open CAS"), "{said}");
}

#[test]
fn a_folder_that_lacks_a_processor_is_doubted() {
    let dir = tempfile::tempdir().expect("a directory");
    for cpu in [0, 1, 3, 4] {
        let event = blktrace_event(
            false,
            BLKTRACE_QUEUE_WRITE_FUA,
            1_000 + cpu,
            8 * cpu,
            4096,
            b"",
        );
        std::fs::write(dir.path().join(format!("sda.blktrace.{cpu}")), event).expect("writing");
    }
    let found = info(dir.path(), &Options::default()).expect("figures");
    assert_eq!((found.requests, found.sure), (4, Sure::Guess));
    assert!(
        found.doubts[0].contains("no file of processor 2"),
        "{:?}",
        found.doubts
    );
    // A processor without requests has an empty file.
    std::fs::write(dir.path().join("sda.blktrace.2"), b"").expect("writing");
    let found = info(dir.path(), &Options::default()).expect("figures");
    assert!(
        found.doubts.is_empty() && found.sure == Sure::Certain,
        "{:?}",
        found.doubts
    );
}

#[test]
fn requests_that_a_driver_issues_twice_are_doubted() {
    let line = |i: u64, late: u64| {
        format!(
            "0,{},4096,{},{}.{:06}\n",
            i * 977 % 99_991 * 8,
            if i.is_multiple_of(3) { 'w' } else { 'r' },
            i / 500,
            i % 500 * 2_000 + late
        )
    };
    let once = (0..2_000).map(|i| line(i, 0)).collect::<Vec<_>>().concat();
    assert!(
        read(once.as_bytes(), &Options::default())
            .0
            .doubts
            .is_empty()
    );
    let twice = (0..2_000)
        .map(|i| {
            if i % 8 == 0 {
                line(i, 0) + &line(i, 300)
            } else {
                line(i, 0)
            }
        })
        .collect::<Vec<_>>()
        .concat();
    let doubts = read(twice.as_bytes(), &Options::default()).0.doubts;
    assert!(
        doubts.len() == 1 && doubts[0].contains("250 of 2250 requests repeat"),
        "{doubts:?}"
    );
    // A clock of seconds does not tell what comes soon.
    let seconds = (0..2_000)
        .map(|i| format!("0,{},4096,r,{}\n", i / 2 * 8, i / 100))
        .collect::<Vec<_>>()
        .concat();
    assert!(
        read(seconds.as_bytes(), &Options::default())
            .0
            .doubts
            .is_empty()
    );
}

/// Requests of gigabytes: their figures take no longer than those of the same number of small ones, and say what they leave out.
#[test]
fn requests_of_gigabytes_end() {
    let rows = (0..20_000_u64)
        .map(|i| format!("{},write,{},4294963200\n", i * 1_000, (i % 50) << 32))
        .collect::<Vec<_>>()
        .concat();
    let (_dir, path) = written(format!("time_ns,op,offset,length\n{rows}").as_bytes());
    let found = info(&path, &Options::default()).expect("figures");
    assert_eq!(
        (found.requests, found.unique_4k),
        (20_000, 50 * ((1 << 20) - 1))
    );
    assert!(found.reuse.accesses < 2e8, "{}", found.reuse.accesses);
    assert!(
        found.assumed[0].starts_with("Reuse and hit ratios are those of the first"),
        "{:?}",
        found.assumed
    );
}
