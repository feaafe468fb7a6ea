//! The five workloads of OODT 4.2.

use std::sync::Arc;

use crate::work::Work;
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;

/// Requests in flight: the number of streams for which the access queue is made (3.2.1: not more than eight).
const DEPTH: u32 = 8;
/// Migrations per run at every scale. The paper leaves the interval to the user.
pub const MIGRATIONS: u64 = 10;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 4.3.1.
    Postmark,
    /// 4.3.2.
    Tpcc,
    /// 4.3.3.
    Tpch,
    /// 4.3.4.
    Iozone,
    /// 4.3.5.
    Web,
}

/// All of them, in the paper's order.
pub const ALL: [Kind; 5] = [
    Kind::Postmark,
    Kind::Tpcc,
    Kind::Tpch,
    Kind::Iozone,
    Kind::Web,
];

impl Kind {
    /// The name that tables show.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Postmark => "Postmark",
            Kind::Tpcc => "TPC-C",
            Kind::Tpch => "TPC-H",
            Kind::Iozone => "IOzone",
            Kind::Web => "web server",
        }
    }

    /// The key in the data file.
    pub fn key(self) -> &'static str {
        match self {
            Kind::Postmark => "postmark",
            Kind::Tpcc => "tpcc",
            Kind::Tpch => "tpch",
            Kind::Iozone => "iozone",
            Kind::Web => "webserver",
        }
    }

    fn generator(self) -> &'static str {
        match self {
            // The set-up as section 4.1 describes it: mounted with sync, and caches emptied every second.
            Kind::Postmark => "postmark,sync=1,drop=1",
            Kind::Tpcc => "tpcc",
            Kind::Tpch => "tpch",
            Kind::Iozone => "iozone",
            Kind::Web => "web-server-oodt",
        }
    }

    /// The default scale.
    pub fn usual_scale(self) -> f64 {
        match self {
            Kind::Postmark => super::POSTMARK_SCALE,
            Kind::Tpcc => super::TPCC_SCALE,
            Kind::Tpch => super::TPCH_SCALE,
            Kind::Iozone => super::IOZONE_SCALE,
            Kind::Web => super::WEB_SCALE,
        }
    }

    /// The generator's specification, with parameters before the scale.
    pub fn spec(self, ctx: &Ctx<'_>, with: &str) -> String {
        let scale = ctx.scale_or(self.usual_scale());
        format!(
            "gen:{}{with},scale={scale},seed={}",
            self.generator(),
            ctx.seed
        )
    }
}

/// The workload, which is made once for all experiments.
///
/// # Errors
/// The generator fails.
pub fn work(ctx: &Ctx<'_>, kind: Kind) -> Result<Arc<Work>, LabError> {
    let spec = kind.spec(ctx, "");
    ctx.once(&spec, || Work::generate(&spec, None, DEPTH))
}

/// Requests between two migrations under `work`.
pub fn migrate_every(work: &Work) -> u64 {
    (work.memory.records.len() as u64 / MIGRATIONS).max(1)
}

/// Adds a description of the run to the outcome.
pub fn describe(out: &mut Outcome, kinds: &[Kind], works: &[Arc<Work>]) {
    for (kind, w) in kinds.iter().zip(works) {
        out.inputs.push(format!(
            "{}: {}, {} requests on a volume of {:.2} GiB; closed loop, {} in flight",
            kind.name(),
            w.name,
            w.memory.records.len(),
            w.bytes as f64 / f64::from(1 << 30),
            w.depth
        ));
    }
    out.substitutes.push(
        "workloads: generators that meet the paper's mean request and shares, instead of blktrace captures replayed by btreplay"
            .to_owned(),
    );
}

/// Each workload has its own default scale, so no single scale is shown unless the user gave one.
pub fn own_scales(ctx: &Ctx<'_>, out: &mut Outcome) {
    out.scale = ctx.scale;
}
