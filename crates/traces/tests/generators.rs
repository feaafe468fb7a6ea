//! Generators: reproducible, golden, and near the figures of the papers.

use std::path::Path;

use isotherm_traces::generate::generators;
use isotherm_traces::{Info, Op, Options, Record, Source, open};

fn records(spec: &str, limit: u64) -> Vec<Record> {
    let options = Options {
        limit: Some(limit),
        ..Options::default()
    };
    open(spec, &options)
        .unwrap_or_else(|e| panic!("{e}"))
        .map(|r| r.unwrap_or_else(|e| panic!("{e}")))
        .collect()
}

fn info(spec: &str) -> Info {
    isotherm_traces::info(spec, &Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Mean bytes of reads and writes.
fn mean(info: &Info) -> f64 {
    (info.bytes_read + info.bytes_written) as f64 / (info.reads + info.writes) as f64
}

/// FNV-1a over all fields of the records.
fn digest(records: &[Record]) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    for r in records {
        let words = [
            r.time.0,
            r.offset,
            u64::from(r.len),
            u64::from(r.device),
            r.op as u64,
            u64::from(r.class),
            u64::from(r.flags.bits()),
            r.file_size.map_or(u64::MAX, |s| s),
        ];
        for byte in words.iter().flat_map(|w| w.to_le_bytes()) {
            h = (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    h
}

/// A specification that is small enough for a test, and large enough to reach the workload itself.
fn small(name: &str) -> String {
    let scale = match name {
        "mail-hro" | "office-hro" | "research-hro" => 0.0001,
        "tpcc" | "iozone" => 0.05,
        _ => 0.01,
    };
    format!("gen:{name},scale={scale}")
}

/// The first 1 000 records of every generator. If a number changes, the workload changed: the commit must state why.
const GOLDEN: &[(&str, u64)] = &[
    ("postmark", 0x9b7e_9bbe_95cf_eb3f),
    ("postmark-loris", 0x6233_df9c_9874_b6b1),
    ("web-server", 0x571c_b4a5_65af_4f97),
    ("web-server-zipf", 0x1b97_6433_9157_2175),
    ("web-server-oodt", 0x2b07_c6a5_a826_fa39),
    ("file-server", 0x029b_2d33_d2d5_cc58),
    ("file-server-greendm", 0xc76b_110c_c5f3_2fa9),
    ("mixed", 0xeb18_56da_01cf_78d6),
    ("specsfs", 0x621c_f173_6b42_b60a),
    ("email", 0x58ae_50dc_3494_f97a),
    ("tpcc", 0xfcf1_a63d_537d_d21b),
    ("tpch", 0x0ed4_dd67_14a2_4bd8),
    ("tpch-dss", 0x15a2_e576_bbab_6ad3),
    ("iozone", 0x8e54_ccb2_8519_541e),
    ("web-search", 0x002d_191b_2d1e_276b),
    ("fiu-online", 0x514e_d292_3a59_a71f),
    ("mail-hro", 0x231a_e68b_2aff_2f0e),
    ("office-hro", 0x5919_d134_5f91_fd65),
    ("research-hro", 0x804f_6f86_5adc_17b7),
    ("uniform", 0xb799_0779_f01e_90b4),
    ("zipf", 0x9626_6c94_712a_f63e),
];

#[test]
fn first_records_are_as_they_were() {
    let seen: Vec<(&str, u64)> = generators()
        .iter()
        .map(|g| (g.name, digest(&records(&small(g.name), 1000))))
        .collect();
    assert_eq!(seen, GOLDEN, "new digests:\n{seen:#x?}");
}

#[test]
fn seeds_decide_and_time_rises() {
    for g in generators() {
        let spec = small(g.name);
        let (a, b) = (records(&spec, 3000), records(&spec, 3000));
        assert!(a == b, "{spec}: equal seeds differ");
        assert!(a.len() >= 1000, "{spec}: {} records", a.len());
        let other = records(&format!("{spec},seed=2"), 3000);
        assert!(a != other, "{spec}: the seed changes nothing");
        for pair in a.windows(2) {
            assert!(pair[0].time <= pair[1].time, "{spec}: {pair:?}");
        }
        for r in &a {
            assert!(
                r.op == Op::Flush || r.len > 0 && r.len % 512 == 0 && r.offset % 512 == 0,
                "{spec}: {r:?}"
            );
            assert!(
                r.class <= 25 && (r.device as usize) < g.devices.len(),
                "{spec}: {r:?}"
            );
        }
    }
}

#[test]
fn batches_do_not_change_what_is_made() {
    for g in generators() {
        let spec = small(g.name);
        let whole = records(&spec, 2500);
        let mut reader = open(&spec, &Options::default()).expect("a generator");
        let mut parts = Vec::new();
        let mut n = 1;
        while parts.len() < whole.len() {
            let want = n.min(whole.len() - parts.len());
            let got = reader.read_batch(&mut parts, want).expect("no error");
            assert!(got > 0 && got <= want, "{spec}");
            n = n * 7 % 97 + 1;
        }
        assert!(parts == whole, "{spec}");
    }
}

#[test]
fn parameters_stay_in_their_ranges() {
    for g in generators() {
        for p in g.params {
            assert!(
                (p.min..=p.max).contains(&p.default),
                "{} {}",
                g.name,
                p.name
            );
        }
    }
}

fn refused(spec: &str) -> String {
    Source::of(Path::new(spec)).expect_err(spec).to_string()
}

#[test]
fn wrong_specifications_name_the_nearest() {
    for (spec, wants) in [
        ("gen:postmrk", "nearest: `postmark`"),
        ("gen:postmark,transaction=5", "nearest: `transactions`"),
        ("gen:zipf,sed=5", "nearest: `seed`"),
        ("gen:zipf,span", "expected key=value"),
        ("gen:zipf,span=12Q", "expected a size"),
        ("gen:zipf,reads=1.5", "from 0 to 1"),
        ("gen:zipf,seed=-1", "whole number"),
        ("gen:zipf,scale=0", "scale"),
        ("gen:", "unknown generator"),
    ] {
        let message = refused(spec);
        assert!(
            message.contains(wants) && message.starts_with(spec),
            "{message}"
        );
    }
    // Parameters that contradict each other are found when the generator begins.
    let error =
        open("gen:zipf,span=16T,size=512", &Options::default()).expect_err("too many places");
    assert!(error.to_string().contains("2^32"), "{error}");
}

#[test]
fn a_file_may_have_any_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("gen:zipf");
    std::fs::write(&path, "1\n2\n3\n").expect("written");
    let n = isotherm_traces::scan(&path, &Options::default()).expect("a list of blocks");
    assert_eq!(n[0].end, 4 * 4096);
}

/// GreenDM Table 6.3: totals exactly, mean sizes within 2 %.
#[test]
fn table_6_3() {
    for (spec, span, reads, read_kb, writes, write_kb) in [
        ("gen:web-search", 32u64 << 30, 1_055_236, 16.0, 212, 8.0),
        ("gen:fiu-online", 8 << 30, 655_526, 8.0, 4_211_786, 4.0),
    ] {
        let i = info(spec);
        assert_eq!((i.reads, i.writes), (reads, writes), "{spec}");
        let near = |bytes: u64, n: u64, kb: f64| {
            let mean = bytes as f64 / n as f64 / 1024.0;
            assert!((mean / kb - 1.0).abs() < 0.02, "{spec}: {mean} KB for {kb}");
        };
        near(i.bytes_read, i.reads, read_kb);
        near(i.bytes_written, i.writes, write_kb);
        let end = i.last_byte.expect("touched") + 1;
        assert!(end <= span && end > span / 10 * 9, "{spec}: {end}");
    }
}

/// OODT figure 4b and 4.3.1: mean 9.5 KB, largest 28 KB; the stages.
#[test]
fn postmark_as_oodt() {
    let i = info("gen:postmark");
    let kb = mean(&i) / 1024.0;
    assert!((kb / 9.5 - 1.0).abs() < 0.05, "{kb}");
    assert_eq!(i.sizes.last_key_value().map(|s| *s.0), Some(28 << 10));
    // The third stage has only metadata requests, except for data that still has to be written back when it begins.
    let (with, without) = (
        records("gen:postmark", u64::MAX),
        records("gen:postmark,delete=0", u64::MAX),
    );
    let begin = with
        .iter()
        .zip(&without)
        .take_while(|(a, b)| a == b)
        .count();
    let third = &with[begin..];
    let data = third.iter().filter(|r| r.class >= 8).count();
    assert!(
        third.len() > 10_000 && data * 50 < third.len(),
        "{data} of {}",
        third.len()
    );
    assert!(third.iter().all(|r| r.class < 8 || r.op == Op::Write));
}

/// OODT 4.3.5: mean 10 KB; reads about 60 %, metadata about 40 % of requests, in the run itself.
#[test]
fn web_server_as_oodt() {
    let i = info("gen:web-server-oodt,loops=10000");
    let kb = mean(&i) / 1024.0;
    assert!((kb / 10.0 - 1.0).abs() < 0.15, "{kb}");
    let meta: u64 = (1..8).filter_map(|c| i.by_class.get(&c)).sum();
    let share = meta as f64 / i.requests as f64;
    assert!((0.35..0.55).contains(&share), "{share}");
}

/// OODT 4.3.2: mean 22 KB and few metadata.
#[test]
fn tpcc_as_oodt() {
    let i = info("gen:tpcc,transactions=60000");
    let kb = mean(&i) / 1024.0;
    assert!((kb / 22.0 - 1.0).abs() < 0.1, "{kb}");
    assert!((1..8).all(|c| !i.by_class.contains_key(&c)));
    assert!(
        [19, 20, 21, 23, 24, 25]
            .iter()
            .all(|c| i.by_class.contains_key(c)),
        "{:?}",
        i.by_class
    );
}

/// OODT 4.3.3: more than 85 % of 4 KB, mean 5.3 KB, 99 % reads.
#[test]
fn tpch_as_oodt() {
    let i = info("gen:tpch,requests=200000");
    let kb = mean(&i) / 1024.0;
    assert!((kb / 5.3 - 1.0).abs() < 0.02, "{kb}");
    assert!(i.sizes[&4096] as f64 > 0.85 * i.requests as f64);
    let reads = i.reads as f64 / i.requests as f64;
    assert!((reads - 0.99).abs() < 0.002, "{reads}");
}

/// DSS 5.2 and 5.7: 29 GB at scale factor 8; scans, lookups, temporary space, indexes last.
#[test]
fn tpch_as_dss() {
    let i = info("gen:tpch-dss,scale=0.05");
    let gb = i.last_byte.expect("touched") as f64 / 0.05 / f64::from(1 << 30);
    assert!((gb / 29.0 - 1.0).abs() < 0.1, "{gb}");
    assert!(
        [20, 22, 23, 24, 25]
            .iter()
            .all(|c| i.by_class.contains_key(c)),
        "{:?}",
        i.by_class
    );
}

/// OODT figure 7a: mostly sequential, most requests over 32 pages.
#[test]
fn iozone_as_oodt() {
    let i = info("gen:iozone,file=128M,cache=16M");
    let long: u64 = i.sizes.range(32 * 4096 + 1..).map(|s| s.1).sum();
    assert!(long * 2 > i.reads + i.writes, "{:?}", i.sizes);
    assert!(i.sequential_ratio > 0.5, "{}", i.sequential_ratio);
}

/// Loris V-B1: about twice as many bytes written as read; V-B3: ten reads to a write.
#[test]
fn loris_read_shares() {
    let i = info("gen:web-server,prepare=0,cache=1M,loops=4000");
    let data = |op: Op| {
        records("gen:web-server,prepare=0,cache=1M,loops=4000", u64::MAX)
            .iter()
            .filter(|r| r.op == op && r.class >= 8)
            .map(|r| u64::from(r.len))
            .sum::<u64>()
    };
    let ratio = data(Op::Read) as f64 / data(Op::Write) as f64;
    // On average, ten files of 32 KB for 16 KB of log.
    assert!((14.0..30.0).contains(&ratio), "{ratio}");
    assert!(i.reads > 0);
    let i = info("gen:postmark-loris,files=4000,transactions=8000,cache=8M");
    let ratio = i.bytes_read as f64 / i.bytes_written as f64;
    assert!((0.3..0.8).contains(&ratio), "{ratio}");
}

/// GreenDM 6.2.5: the smaller the Gamma, the fewer files get most of the accesses.
#[test]
fn gamma_decides_locality() {
    let touched = |gamma: u32| {
        let spec = format!(
            "gen:file-server-greendm,files=2000,loops=2000,prepare=0,cache=4M,gamma={gamma}"
        );
        info(&spec).unique_4k
    };
    let (narrow, middle, wide) = (touched(1), touched(4), touched(16));
    assert!(narrow < middle && middle < wide, "{narrow} {middle} {wide}");
}

/// Loris V-B4: a Zipf choice has more reuse than a uniform one.
#[test]
fn zipf_files_are_reused() {
    let hits = |name: &str| {
        let i = info(&format!(
            "gen:{name},files=5000,prepare=0,cache=1M,loops=3000"
        ));
        // The hit ratio of an LRU cache of a quarter of the files of one set.
        let quarter = 5000.0 * 8192.0;
        i.reuse
            .lru_hit_ratio
            .iter()
            .rfind(|p| p.0 <= quarter)
            .map_or(0.0, |p| p.1)
    };
    let (zipf, uniform) = (hits("web-server-zipf"), hits("web-server"));
    assert!(zipf > uniform + 0.1, "{zipf} {uniform}");
}

#[test]
fn mixed_has_two_volumes_at_the_same_time() {
    let all = records("gen:mixed,scale=0.05,prepare=0", 5000);
    let on = |d: u32| all.iter().filter(|r| r.device == d).count();
    assert!(on(0) > 500 && on(1) > 500, "{} {}", on(0), on(1));
    // The two volumes interleave: there are many changes from one to the other.
    let changes = all
        .windows(2)
        .filter(|w| w[0].device != w[1].device)
        .count();
    assert!(changes > 200, "{changes}");
}

/// HRO Table I: shares of operations are not visible on the disk, sizes of accesses are. Images: 50, 240 and 140 GB.
#[test]
fn hro_images() {
    for (name, gb) in [
        ("mail-hro", 50.0),
        ("office-hro", 240.0),
        ("research-hro", 140.0),
    ] {
        let i = info(&format!("gen:{name},scale=0.0005"));
        let touched = i.unique_4k as f64 * 4096.0 / 0.0005 / f64::from(1 << 30);
        assert!(touched < gb * 1.3, "{name}: {touched} of {gb} GB");
        assert!(
            i.by_class.contains_key(&7) && i.by_class.contains_key(&6),
            "{name}"
        );
    }
}

#[test]
fn uniform_is_uniform_and_zipf_is_not() {
    let count = |spec: &str| {
        let mut counts = vec![0u32; 256];
        for r in records(spec, u64::MAX) {
            counts[(r.offset / 4096) as usize] += 1;
        }
        counts.sort_unstable();
        counts
    };
    let uniform = count("gen:uniform,span=1M,requests=256000");
    assert!(uniform[0] > 850 && uniform[255] < 1150, "{uniform:?}");
    let zipf = count("gen:zipf,span=1M,requests=256000,exponent=1");
    // The hottest of 256 regions has 1 / H(256) of the requests.
    let due = 256_000.0 / (1..=256).map(|r| 1.0 / f64::from(r)).sum::<f64>();
    assert!(
        (f64::from(zipf[255]) / due - 1.0).abs() < 0.03,
        "{} {due}",
        zipf[255]
    );
}

#[test]
fn converted_they_are_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("p.parquet");
    let spec = "gen:postmark,scale=0.01";
    let written = isotherm_traces::convert(
        spec,
        &Options::default(),
        &out,
        isotherm_traces::Format::Parquet,
    )
    .expect("written");
    let made = records(spec, u64::MAX);
    assert_eq!(written.requests, made.len() as u64);
    let back: Vec<Record> = open(&out, &Options::default())
        .expect("a trace")
        .map(|r| r.expect("sound"))
        .collect();
    assert!(back == made);
}
