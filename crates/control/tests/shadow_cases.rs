//! Shadows against full runs of the same settings: how often the hit ratio of the full run is in the range that is answered.
//!
//! A full run is the same null engine with all extents and all slots. Both begin with empty flash, and count from the same request on.

use std::collections::HashSet;

use isotherm_control::shadow::{Begin, Estimate, Range, STRATUM_LEAST, Seen, Shadows, Shape};
use isotherm_core::geometry::{Geometry, Member, Stash};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::Policy;
use isotherm_core::{ExtentId, TierId};
use isotherm_traces::{Op, Options, Record};
use isotherm_words::policy_spec::PolicySpec;

/// A trace, the size of extents as a power of two, and the largest size of strata.
struct Case {
    trace: &'static str,
    extent_shift: u32,
    stratum_shift: u32,
    policy: &'static str,
    /// Flash, in thousandths of the touched extents.
    thousandths: &'static [u32],
}

const CASES: &[Case] = &[
    Case {
        trace: "gen:zipf,requests=120000,span=1G,seed=1",
        extent_shift: 12,
        stratum_shift: 5,
        policy: "benefit",
        thousandths: &[50, 200],
    },
    Case {
        trace: "gen:zipf,requests=120000,span=1G,exponent=1.1,reads=0.9,seed=2",
        extent_shift: 12,
        stratum_shift: 5,
        policy: "lru",
        thousandths: &[50, 200],
    },
    Case {
        trace: "gen:zipf,requests=120000,span=2G,exponent=0.7,seed=3",
        extent_shift: 14,
        stratum_shift: 6,
        policy: "arc",
        thousandths: &[100, 300],
    },
    Case {
        trace: "gen:uniform,requests=100000,span=256M,seed=4",
        extent_shift: 12,
        stratum_shift: 5,
        policy: "w-tinylfu",
        thousandths: &[100],
    },
    Case {
        trace: "gen:web-search,seed=5",
        extent_shift: 16,
        stratum_shift: 6,
        policy: "benefit",
        thousandths: &[100, 300],
    },
    Case {
        trace: "gen:fiu-online,seed=6",
        extent_shift: 12,
        stratum_shift: 4,
        policy: "benefit",
        thousandths: &[50, 200],
    },
    Case {
        trace: "gen:postmark,seed=7",
        extent_shift: 12,
        stratum_shift: 5,
        policy: "s3-fifo",
        thousandths: &[100, 300],
    },
    Case {
        trace: "gen:tpcc,scale=0.05,seed=8",
        extent_shift: 13,
        stratum_shift: 4,
        policy: "benefit",
        thousandths: &[100, 300],
    },
    Case {
        trace: "arc-OLTP-head100k.lis.zst",
        extent_shift: 12,
        stratum_shift: 4,
        policy: "benefit",
        thousandths: &[100, 300],
    },
    Case {
        trace: "linux-mysql.load.zst",
        extent_shift: 14,
        stratum_shift: 4,
        policy: "benefit",
        thousandths: &[100, 300],
    },
    Case {
        trace: "loris-mail.parquet",
        extent_shift: 12,
        stratum_shift: 4,
        policy: "lru",
        thousandths: &[200],
    },
];
/// Most requests of a trace.
const REQUESTS: u64 = 80_000;

fn build(text: &str) -> Result<Box<dyn Policy>, String> {
    PolicySpec::split(text)?.build()
}

fn requests(case: &Case) -> Vec<Record> {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/");
    let path = if case.trace.starts_with("gen:") {
        case.trace.to_owned()
    } else {
        format!("{fixtures}{}", case.trace)
    };
    let options = Options {
        limit: Some(REQUESTS),
        ..Options::default()
    };
    let reader = isotherm_traces::open(path, &options).expect("opens");
    let all = reader.map(|r| r.expect("a record"));
    all.filter(|r| matches!(r.op, Op::Read | Op::Write) && r.device == 0)
        .collect()
}

/// A full run, with its counts at the last two marks.
struct Full {
    engine: NullEngine<Box<dyn Policy>>,
    marks: [(u64, u64); 2],
}

impl Full {
    fn new(shape: Shape, policy: &str, slots: u32) -> Full {
        let member = |tier, slots| Member {
            tier: TierId(tier),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: Stash::default(),
        };
        let policy = build(policy).expect("a policy");
        let members = vec![member(0, slots), member(1, shape.extents)];
        let geo = Geometry::new(
            shape.extent_shift,
            shape.block_shift,
            shape.extents,
            members,
        );
        let geo = geo.and_then(|g| g.of_kind(policy.uses().volume()));
        Full {
            engine: NullEngine::new(geo.expect("a volume"), policy),
            marks: [(0, 0); 2],
        }
    }
    fn counts(&self) -> (u64, u64) {
        let c = self.engine.counters();
        (c.accesses, c.hits)
    }
    fn ratio(&self) -> f64 {
        let (then, now) = (self.marks[0], self.counts());
        (now.1 - then.1) as f64 / (now.0 - then.0).max(1) as f64
    }
}

/// Plays all requests on the shadows and on a full run of each of their settings.
fn play(
    case: &Case,
    all: &[Record],
    fast: u32,
    stratum_shift: u32,
) -> (Shadows, Vec<Estimate>, Vec<f64>) {
    let shift = case.extent_shift;
    let last = all.iter().map(|r| r.end() - 1).max().expect("requests");
    let shape = Shape {
        extents: (last >> shift) as u32 + 1,
        extent_shift: shift,
        block_shift: 9,
        fast,
    };
    let begin = Begin {
        stratum_shift,
        now: all[0].time,
        loads: None,
    };
    let mut set = Shadows::new(shape, case.policy, &build, begin).expect("fits");
    let settings = set.settings().to_vec();
    let mut full: Vec<Full> = (settings.iter())
        .map(|s| Full::new(shape, &s.policy, s.slots))
        .collect();
    let (sampler, mut seen) = (set.sampler(), 0);
    for r in all {
        let (from, to) = ((r.offset >> shift) as u32, ((r.end() - 1) >> shift) as u32);
        for f in &mut full {
            for e in from..=to {
                let request = (r.offset, r.len);
                let write = r.op == Op::Write;
                (f.engine).access(r.time, ExtentId(e), write, r.class, request);
            }
        }
        let request = Seen {
            offset: r.offset,
            bytes: r.len,
            class: r.class,
            write: r.op == Op::Write,
        };
        let n = sampler.each(request, || r.time, |t| set.play(&t));
        seen += u64::from(n);
        if set.is_mark_due() {
            set.mark(seen);
            for f in &mut full {
                f.marks = [f.marks[1], f.counts()];
            }
        }
    }
    let estimates = set.estimates(seen);
    (set, estimates, full.iter().map(Full::ratio).collect())
}

#[derive(Default)]
struct Score {
    within: u32,
    all: u32,
    width: f64,
    off: f64,
}

impl Score {
    fn add(&mut self, name: &str, r: Range, real: f64) {
        let within = (r.low..=r.high).contains(&real);
        self.within += u32::from(within);
        self.all += 1;
        self.width += r.high - r.low;
        self.off += (r.hits - real).abs();
        let out = if within { "" } else { " OUT" };
        let Range { hits, low, high } = r;
        println!("{name}: {hits:.4} ({low:.4} to {high:.4}), full {real:.4}{out}");
    }
    fn line(&self, name: &str) -> String {
        let n = f64::from(self.all);
        format!(
            "{name}: {} of {} within; mean width {:.4}, mean distance {:.4}",
            self.within,
            self.all,
            self.width / n,
            self.off / n
        )
    }
    fn is_enough(&self) -> bool {
        self.all >= 50 && self.within * 100 >= self.all * 95
    }
}

/// With flash, the range contains the difference between the shadow of today's settings and what is measured. Without, there is nothing to
/// compare with, and the range is that of the sample. A policy that goes by single extents does in a sample what it does in the whole;
/// others (`benefit`) weigh requests and devices, of which a sample shows less.
#[test]
fn the_full_run_is_in_the_range_in_95_of_100_cases() {
    let (mut simple, mut others) = (Score::default(), Score::default());
    let mut corrected = Score::default();
    for case in CASES {
        let all = requests(case);
        let extents = all
            .iter()
            .flat_map(|r| (r.offset >> case.extent_shift)..=((r.end() - 1) >> case.extent_shift));
        let touched = extents.collect::<HashSet<_>>().len() as u32;
        for &share in case.thousandths {
            let fast = (u64::from(touched) * u64::from(share) / 1000) as u32;
            // Not all extents are sampled; a quarter of today's flash should have 16 slots in each group.
            let most = (fast / 64).max(1).ilog2().max(STRATUM_LEAST + 1);
            let (set, estimates, real) = play(case, &all, fast, case.stratum_shift.min(most));
            let Some(present) = set.present().filter(|_| set.lacks() == 0) else {
                println!("{} {share}: the sample is too small", case.trace);
                continue;
            };
            for (i, s) in set.settings().iter().enumerate() {
                let name = format!("{} {share} {} {}", case.trace, s.policy, s.slots);
                let e = estimates[i];
                let goes_by_extent = !build(&s.policy).expect("a policy").minds_gaps();
                let score = if goes_by_extent {
                    &mut simple
                } else {
                    &mut others
                };
                score.add(&name, e.range(), real[i]);
                if i != present {
                    let range = e.corrected(estimates[present], real[present]);
                    corrected.add(&format!("{name} corrected"), range, real[i]);
                }
            }
        }
    }
    println!("{}", corrected.line("corrected"));
    println!(
        "{}",
        simple.line("not corrected, policies that go by extents")
    );
    println!("{}", others.line("not corrected, others"));
    assert!(corrected.is_enough() && simple.is_enough());
}
