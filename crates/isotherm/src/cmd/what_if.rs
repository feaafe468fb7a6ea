//! `isotherm what-if`: what a served volume would do with other flash or another policy.

use isotherm_answers::{Between, Prediction, WhatIf};

use crate::Failure;
use crate::args::WhatIfArgs;
use crate::control::Request;
use crate::control::client::{PATIENCE, served};
use crate::human::{bytes, count, percent, time};
use crate::table::table;

/// Asks the server of a volume.
///
/// # Errors
/// The volume is not served or is no cache volume, there were too few requests, or the size or policy is not among those that are tried.
pub fn run(args: &WhatIfArgs) -> Result<(), Failure> {
    let mut client = served(&args.volume)?.with_limit(PATIENCE);
    let answer: WhatIf = client.ask_for(&Request::WhatIf {
        fast: args.fast,
        policy: args.policy.clone(),
    })?;
    args.json.print(&answer, || text(&answer))
}

fn text(a: &WhatIf) -> String {
    let mut out = format!(
        "{}: {} accesses of the last {}, a sample of {} of the extents; about {} were accessed in {}\n",
        a.volume,
        count(a.sampled_accesses as f64),
        time(a.counted_s),
        percent(Some(a.sample_rate)),
        bytes(a.touched_bytes),
        time(a.watched_s),
    );
    if let Some(mean) = a.measured_latency_mean_s {
        let hits = match a.measured_hit_ratio {
            Some(_) => format!(", with {} of hits", percent(a.measured_hit_ratio)),
            None => ", without flash".to_owned(),
        };
        out.extend(["measured: mean latency ", &time(mean), &hits, "\n"]);
    }
    if let Some(shadow) = a.shadow_hit_ratio {
        let shadow = percent(Some(shadow));
        out.extend(["the shadow of today's settings has ", &shadow]);
        out += "; the ranges contain the difference\n";
    }
    let rows = |lines: &[Prediction]| lines.iter().map(|p| row(a, p)).collect::<Vec<_>>();
    let all = match &a.asked {
        Some(p) => rows(std::slice::from_ref(p)),
        None => [rows(&a.sizes), rows(&a.policies)].concat(),
    };
    out += &table(
        &[
            "POLICY", "FLASH", "HITS", "FROM", "TO", "MEAN", "FROM", "TO", "",
        ],
        &all,
    );
    if a.measured_hit_ratio.is_none() {
        out += "without flash nothing is there to correct the shadows by: the ranges hold for policies like lru, and under benefit for 4 of 5 \
                runs of our tests; latencies are told once there is flash\n";
    }
    out
}

fn row(a: &WhatIf, p: &Prediction) -> Vec<String> {
    let ends = |b: Option<Between>, show: &dyn Fn(f64) -> String| match b {
        Some(b) => [b.value, b.low, b.high].map(show),
        None => [(); 3].map(|()| "-".to_owned()),
    };
    let hits = ends(Some(p.hit_ratio), &|v| percent(Some(v)));
    let mean = ends(p.latency_mean_s, &time);
    let today = p.fast_bytes == a.fast_bytes && p.policy == a.policy;
    let note = match (today, p.filling) {
        (true, _) => "today",
        (false, true) => "not full yet",
        (false, false) => "",
    };
    let head = [p.policy.clone(), bytes(p.fast_bytes)];
    let rest = hits.into_iter().chain(mean).chain([note.to_owned()]);
    head.into_iter().chain(rest).collect()
}
