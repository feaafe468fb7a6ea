//! Hits from samples of the extents, compared with the whole run: the difference, and whether the stated error covers it.

use isotherm_lab::sample::Samples;
use isotherm_lab::sim::{Report, Setup, TraceFile, hit_only_file};
use isotherm_traces::Options;

const RATE: f64 = 0.02;
const SIZES: [&str; 3] = ["2%", "10%", "30%"];

fn trace() -> TraceFile {
    TraceFile::new("gen:zipf,requests=500000,span=2G", Options::default())
}

fn setup(policy: &str, size: &str) -> Setup {
    let policy = policy.parse().expect("a policy");
    Setup::pair(policy, size.parse().expect("a size")).expect("presets")
}

fn whole(policy: &str, size: &str) -> Report {
    hit_only_file(&setup(policy, size), &trace(), None).expect("a run")
}

#[test]
fn a_sample_is_near_the_whole_and_says_how_near() {
    let samples = Samples::read(&trace(), &setup("lru", "10%"), RATE).expect("samples");
    let (mut within, mut all) = (0, 0);
    for policy in ["lru", "arc", "s3-fifo", "sieve"] {
        for size in SIZES {
            let want = whole(policy, size);
            let got = samples
                .run(&setup(policy, size), None)
                .expect("an estimate");
            let error = got.sample.expect("a sample").fast_hit_ratio_error;
            let off = (got.fast_hit_ratio - want.fast_hit_ratio).abs();
            println!(
                "{policy:8} {size:>4}: {:.4}, whole {:.4}, off {off:.4}, stated {error:.4}",
                got.fast_hit_ratio, want.fast_hit_ratio
            );
            assert!(off < 0.02, "{policy} {size}: off by {off}");
            within += usize::from(off <= error);
            all += 1;
            // Counts that are known for the whole trace must be those of the whole trace.
            assert_eq!(
                (got.requests, got.reads, got.writes, got.accesses),
                (want.requests, want.reads, want.writes, want.accesses)
            );
            let touched = got.touched_extents as f64 / want.touched_extents as f64;
            assert!((0.9..1.1).contains(&touched), "{touched}");
            let bytes = got.fast_bytes as f64 / want.fast_bytes as f64;
            assert!((0.9..1.1).contains(&bytes), "{bytes}");
        }
    }
    // The stated error covers 95 %; the cells share their samples, so all of them may miss together.
    assert!(
        within * 10 >= all * 8,
        "{within} of {all} within the stated error"
    );
}

#[test]
fn an_absolute_size_shrinks_with_the_sample() {
    let bytes = whole("lru", "10%").fast_bytes;
    let size = format!("{bytes}");
    let samples = Samples::read(&trace(), &setup("lru", &size), RATE).expect("samples");
    let by_bytes = samples
        .run(&setup("lru", &size), None)
        .expect("an estimate");
    let by_share = samples
        .run(&setup("lru", "10%"), None)
        .expect("an estimate");
    assert_eq!(by_bytes.fast_bytes, bytes);
    assert!((by_bytes.fast_hit_ratio - by_share.fast_hit_ratio).abs() < 0.01);
}

#[test]
fn what_a_sample_cannot_say_is_refused() {
    let refusal = |policy: &str, size: &str, rate: f64| {
        let read = Samples::read(&trace(), &setup("lru", "10%"), rate);
        let run = read.and_then(|s| s.run(&setup(policy, size), None));
        run.expect_err("refused").to_string()
    };
    for policy in ["greendm", "linear", "hro", "oodt"] {
        let why = refusal(policy, "10%", RATE);
        assert!(why.contains("neighbours"), "{policy}: {why}");
    }
    assert!(refusal("lru", "64K", RATE).contains("larger sample"));
    assert!(refusal("lru", "0.001%", RATE).contains("larger sample"));
    assert!(refusal("lru", "10%", 0.5).contains("must be within"));
}
