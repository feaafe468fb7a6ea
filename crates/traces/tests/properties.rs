//! No input may cause detection or reading to panic, to hang, or to return a record that breaks the reader's guarantees.

mod common;

use common::samples;
use isotherm_traces::{Format, Op, Options, info, open, sniff};
use proptest::prelude::*;

/// Reads `bytes` as `format` to the end or the first error, and checks the records.
fn survives(bytes: &[u8], format: Option<Format>, skip_bad: u64) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("t");
    std::fs::write(&path, bytes).expect("writable");
    let options = Options {
        format,
        skip_bad,
        ..Options::default()
    };
    let Ok(mut reader) = open(&path, &options) else {
        return Ok(());
    };
    let (mut last, mut count) = (None, 0u64);
    for r in reader.by_ref() {
        let Ok(r) = r else { continue };
        prop_assert!(Some(r.time) >= last, "time went back");
        prop_assert!(r.offset.checked_add(u64::from(r.len)).is_some());
        prop_assert!(r.len > 0 || r.op == Op::Flush);
        prop_assert!(r.class < 64);
        last = Some(r.time);
        count += 1;
    }
    prop_assert!(reader.next().is_none(), "the end is not the end");
    prop_assert_eq!(reader.stats().requests, count);
    prop_assert!(reader.stats().bad_skipped <= skip_bad);
    // The sums over all readable records must not overflow either.
    let _ = info(&path, &options);
    Ok(())
}

fn formats() -> Vec<Format> {
    Format::all().collect()
}

/// A Parquet file to damage.
fn parquet() -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let sample = samples()
        .into_iter()
        .find(|(f, _)| *f == Format::Octf)
        .expect("a sample")
        .1;
    std::fs::write(&from, sample).expect("writable");
    isotherm_traces::convert(&from, &Options::default(), &to, Format::Parquet)
        .expect("it converts");
    std::fs::read(&to).expect("it was written")
}

/// The sample of every format, the columnar one included.
fn every_sample() -> Vec<(Format, Vec<u8>)> {
    let mut all = samples();
    all.push((Format::Parquet, parquet()));
    all.push((Format::Events, common::events()));
    all
}

/// Text that resembles traces: digits, separators and the words that parsers know.
fn near_text() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        "[0-9]{1,22}",
        Just("18446744073709551615".to_owned()),
        Just("R".to_owned()),
        Just("Write".to_owned()),
        Just("fio version 2 iolog\n".to_owned()),
        Just("start ; sector".to_owned()),
        Just("8,0".to_owned()),
        Just("op,offset,length\n".to_owned()),
        "[ ,;.\n\t+*-]{1,3}",
        "\\PC{0,4}",
    ];
    prop::collection::vec(word, 0..80).prop_map(|words| words.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sniffing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = sniff(&bytes);
    }

    #[test]
    fn random_bytes_survive(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        format in prop::option::of(prop::sample::select(formats())),
        skip in 0u64..1000,
    ) {
        survives(&bytes, format, skip)?;
    }

    #[test]
    fn near_traces_survive(bytes in near_text(), format in prop::option::of(prop::sample::select(formats())), skip in 0u64..1000) {
        let _ = sniff(&bytes);
        survives(&bytes, format, skip)?;
    }

    #[test]
    fn cut_and_damaged_traces_survive(
        (format, bytes) in prop::sample::select(every_sample()),
        cut in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        skip in 0u64..20,
    ) {
        let mut bytes = bytes;
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        survives(&bytes, Some(format), skip)?;
        survives(&bytes, None, skip)?;
    }
}

#[test]
fn every_cut_of_every_sample_survives() {
    for (format, bytes) in every_sample() {
        for cut in 0..bytes.len() {
            survives(&bytes[..cut], Some(format), 3)
                .unwrap_or_else(|e| panic!("{format} cut at {cut}: {e}"));
        }
    }
}

/// Parquet has lengths and offsets everywhere, so every part of the file is damaged. Steps of a prime number limit the time.
#[test]
fn parquet_damaged_anywhere_survives() {
    let whole = parquet();
    for at in (0..whole.len()).step_by(5) {
        for change in [0xff, 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            survives(&bytes, Some(Format::Parquet), 3)
                .unwrap_or_else(|e| panic!("byte {at} ^ {change}: {e}"));
        }
    }
}
