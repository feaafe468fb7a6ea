//! Exact figures of real traces that may be shipped (`fixtures/`), and of small hand-written ones.

use std::path::PathBuf;

use isotherm_core::Nanos;
use isotherm_traces::{Flags, Format, Op, Options, Record, info, open};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

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
    assert_eq!(
        first,
        Record::new(Nanos(0), Op::Write, 6_293_576 * 512, 4096)
    );
    let second = reader.next().expect("a record").expect("a sound one");
    assert_eq!(second.time, Nanos(2_110_378_217));
    let header = String::from_utf8(reader.header().to_vec()).expect("UTF-8");
    assert!(
        header.starts_with("Copyright Thomas Schoebel-Theuer")
            && header.contains("permitted in any medium")
    );
    assert!(reader.all(|r| r.is_ok_and(|r| r.flags == Flags::NONE)));
}
