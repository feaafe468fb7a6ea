//! Requests of real programs on a served volume, with the classes that it knew: `bench/classes` recorded them (fixtures/README.md).

mod common;

use isotherm_lab::sim::{Report, Setup, TraceFile, hit_only_file, run};
use isotherm_traces::Op;
use isotherm_traces::{Options, Record, open};

/// The fixture, the classes that its load is about, and the least share of its bytes that had a class, in per cent.
const RECORDED: [(&str, std::ops::RangeInclusive<u8>, u64); 2] = [
    ("tpch.parquet", 20..=25, 80),
    ("pgbench.parquet", 19..=25, 50),
];

fn records(name: &str) -> Vec<Record> {
    let path = common::trace(name).expect("a fixture");
    let reader = open(path, &Options::default()).expect("a trace");
    reader.map(|r| r.expect("a record")).collect()
}

/// The servers of DSS on ext3: requests that read have a class. Those that write new data have none yet, because the inode is written
/// after the data.
#[test]
fn data_of_new_files_has_no_class_yet() {
    for name in ["dss-file.parquet", "dss-email.parquet"] {
        let all = records(name);
        let known = |op: Op| {
            let bytes = |of: &dyn Fn(&Record) -> bool| -> u64 {
                let some = all.iter().filter(|r| r.op == op && of(r));
                some.map(|r| u64::from(r.len)).sum()
            };
            bytes(&|r| r.class != 0) * 100 / bytes(&|_| true)
        };
        let (read, written) = (known(Op::Read), known(Op::Write));
        println!("{name}: {read} % of the bytes read, {written} % of those written");
        assert!(read >= 90 && written <= 10, "{name}: {read} {written}");
    }
}

/// The lab counts copies of several classes, where the policy knows them: none with extents of 4 KiB, more the larger extents are.
#[test]
fn larger_extents_hold_more_classes() {
    let path = common::trace("dss-file.parquet").expect("a fixture");
    let file = TraceFile::new(path, Options::default());
    let share = |policy: &str, extent: u32| {
        let size = "50%".parse().expect("a size");
        let mut setup = Setup::pair(policy.parse().expect("a policy"), size).expect("presets");
        setup.extent_bytes = extent;
        let report = run(&setup, &file).expect("a run");
        report.mixed_copies.map(|m| {
            assert!(m.mixed <= m.copies && m.neighbour_bytes <= m.bytes, "{m:?}");
            m.share.expect("copies")
        })
    };
    assert_eq!(share("dss-lru", 65_536), None);
    let shares = [4096, 16_384, 65_536].map(|e| share("dss-lru-s", e).expect("known"));
    println!("{shares:?}");
    assert!(
        shares[0] <= 0.0 && shares[0] < shares[1] && shares[1] < shares[2],
        "{shares:?}"
    );
}

fn played(name: &str, policy: &str) -> Report {
    let path = common::trace(name).expect("a fixture");
    let size = "10%".parse().expect("a size");
    let setup = Setup::pair(policy.parse().expect("a policy"), size).expect("presets");
    hit_only_file(&setup, &TraceFile::new(path, Options::default()), None).expect("a run")
}

#[test]
fn requests_have_the_classes_of_their_load() {
    for (name, classes, least) in RECORDED {
        let all = records(name);
        let bytes = |of: &dyn Fn(&Record) -> bool| -> u64 {
            all.iter().filter(|r| of(r)).map(|r| u64::from(r.len)).sum()
        };
        let (whole, known) = (bytes(&|_| true), bytes(&|r| classes.contains(&r.class)));
        println!(
            "{name}: {} requests, {} % of the bytes",
            all.len(),
            100 * known / whole
        );
        assert!(known * 100 >= whole * least, "{name}: {known} of {whole}");
        assert!(
            all.iter().any(|r| r.op == isotherm_traces::Op::Flush),
            "{name}"
        );
    }
}

/// DSS 4.4: what has the first priority is hit about as often as without classes where nearly all is of it, as in these databases, whose
/// indexes are small.
#[test]
fn selective_caching_keeps_what_comes_first() {
    for (name, ..) in RECORDED {
        let first = |policy: &str| {
            let report = played(name, policy);
            let classes = report.by_class.iter().filter(|(class, _)| {
                let class = class.parse::<u8>().expect("a class");
                class != 0 && isotherm_core::policy::priority(class) == 0
            });
            classes.fold((0, 0), |(h, a), (_, c)| (h + c.fast_hits, a + c.accesses))
        };
        let ((lru, all), (lru_s, same)) = (first("dss-lru"), first("dss-lru-s"));
        println!("{name}: LRU {lru}, LRU-S {lru_s} of {all}");
        assert_eq!(all, same, "{name}");
        assert!(
            lru_s * 100 >= lru * 98,
            "{name}: LRU-S {lru_s}, LRU {lru} of {all}"
        );
    }
}
