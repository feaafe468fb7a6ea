//! Reproduces the published figures and tables: our figure beside the paper's, and a verdict on each stated direction.
//!
//! ```text
//!  data/PAPER.toml ─► paper: titles, claims, printed values ─┐
//!  greendm/*.rs    ─► run: models, generators, sim ──────────┴─► Outcome: tables, claims, substitutes
//! ```
//! | file | content |
//! |---|---|
//! | `paper.rs` | what the papers print, read from `data/` |
//! | `outcome.rs` | tables and claims |
//! | `verdict.rs` | judges claims over cells and seeds |
//! | `work.rs` | workloads in memory |
//! | `recorded.rs` | recordings of whole files on real mounts |
//! | `hro/on_recordings.rs`, `loris/on_recordings.rs` | claims judged on recordings that the user gives |
//! | `cell.rs` | simulated cells, each of which runs once |
//! | `greendm/` | GreenDM's experiments |
//! | `dss/` | DSS' experiments |
//! | `hro/` | HRO's experiments |
//! | `oodt/` | OODT's experiments |
//! | `loris/` | Loris' experiments |
//!
//! To add an experiment: add its claims and printed values to `data/PAPER.toml`, a function that fills an [`Outcome`], and a row to
//! [`EXPERIMENTS`]. Invariants: every figure that is printed as ours was computed in this run, and every claim of an experiment that ran
//! has a verdict.

mod cell;
mod dss;
mod greendm;
mod hro;
mod loris;
mod oodt;
mod outcome;
mod paper;
mod recorded;
mod verdict;
mod work;

pub use outcome::{Cell, Claim, Outcome, Reproduced, Row, Summary, Table, Verdict};
pub use paper::{Entry, How, PAPERS, Paper, Printed};
pub use verdict::{Evidence, SEEDS};

use std::any::Any;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use isotherm_core::policy::nearest;

use greendm::measure::Measured;
use isotherm_lab::LabError;
use isotherm_lab::sim::Report;
use work::Work;

/// The settings of a run of experiments.
pub struct Ctx<'a> {
    /// The factor for sizes and counts of simulated workloads, in place of each experiment's default scale; 1 is the paper's.
    pub scale: Option<f64>,
    /// The seed of everything random.
    pub seed: u64,
    /// The folder with traces that are not in the tree, if there is one.
    pub traces: Option<PathBuf>,
    /// Recordings of real mounts on which claims are judged instead of on the generators: the name of the load, and the file.
    pub recordings: Vec<(String, PathBuf)>,
    /// The number of runs at the same time.
    pub threads: usize,
    /// Called with a description of the current step, to show progress.
    pub progress: &'a (dyn Fn(&str) + Sync),
    /// Results of simulated cells by their description, because experiments share cells.
    memo: Mutex<HashMap<String, Arc<Measured>>>,
    /// The same for experiments that measure drives alone.
    reports: Mutex<HashMap<String, Arc<Report>>>,
    /// Workloads and other values that several experiments use.
    made: Mutex<HashMap<String, Arc<dyn Any + Send + Sync>>>,
}

impl<'a> Ctx<'a> {
    /// At this scale, with the traces in the tree, for tests.
    #[cfg(test)]
    pub(crate) fn on_fixtures(progress: &'a (dyn Fn(&str) + Sync), scale: f64) -> Ctx<'a> {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
        Ctx {
            scale: Some(scale),
            traces: Some(fixtures.into()),
            ..Ctx::new(progress)
        }
    }
    /// All cores, the default scales, seed 1.
    pub fn new(progress: &'a (dyn Fn(&str) + Sync)) -> Ctx<'a> {
        Ctx {
            scale: None,
            seed: 1,
            traces: None,
            recordings: Vec::new(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            progress,
            memo: Mutex::default(),
            reports: Mutex::default(),
            made: Mutex::default(),
        }
    }

    /// The result of `make`, which runs once for all experiments that ask for `name`.
    fn once<T: Any + Send + Sync>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<T, LabError>,
    ) -> Result<Arc<T>, LabError> {
        let made = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let known = made().get(name).cloned();
        if let Some(Ok(t)) = known.map(Arc::downcast::<T>) {
            return Ok(t);
        }
        let t = Arc::new(make()?);
        made().insert(name.to_owned(), t.clone());
        Ok(t)
    }

    /// The scale of this run.
    fn scale_or(&self, usual: f64) -> f64 {
        self.scale.unwrap_or(usual)
    }
}

/// The code of an experiment.
type Run = fn(&Ctx<'_>, &mut Outcome) -> Result<(), LabError>;

/// An experiment of this build.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// The id that the papers' data files use.
    pub id: &'static str,
    /// Scale of the simulated workloads if none is given. `None`: nothing is scaled, or each workload has its own scale.
    pub scale: Option<f64>,
    run: Run,
    /// The same on recordings that the user gives.
    on_recordings: Option<Run>,
}

impl Experiment {
    const fn or_on(self, run: Run) -> Experiment {
        Experiment {
            on_recordings: Some(run),
            ..self
        }
    }
    /// Whether it can be judged on recordings that the user gives.
    pub fn takes_recordings(&self) -> bool {
        self.on_recordings.is_some()
    }
}

const fn plain(id: &'static str, run: Run) -> Experiment {
    Experiment {
        id,
        scale: None,
        run,
        on_recordings: None,
    }
}

const fn scaled(id: &'static str, scale: f64, run: Run) -> Experiment {
    Experiment {
        id,
        scale: Some(scale),
        run,
        on_recordings: None,
    }
}

/// The experiments of this build, in the papers' order.
pub const EXPERIMENTS: &[Experiment] = &[
    plain("greendm-2.1", greendm::tables::capacity),
    plain("greendm-4.4", greendm::tables::shelves),
    plain("greendm-4.norm", greendm::tables::idle_per_tb),
    plain("greendm-5.1", greendm::compress::run),
    scaled("greendm-6.4", greendm::LBA_SCALE, greendm::lba::run),
    scaled("greendm-6.5", greendm::SEARCH_SCALE, greendm::search::run),
    scaled("greendm-6.6", greendm::ONLINE_SCALE, greendm::online::run),
    scaled("greendm-6.7", greendm::FILES_SCALE, greendm::files::run),
    plain("greendm-7.2", greendm::tables::worked_example),
    plain("greendm-7.1-7.3", greendm::cost::run),
    plain("greendm-8.3-8.8", greendm::caching::run),
    plain("greendm-9.1-9.3", greendm::share::run),
    scaled("hro-2", hro::SCALE, hro::motive::run),
    scaled("hro-3", hro::SCALE, hro::uses::run),
    scaled("hro-6", hro::SCALE, hro::latency::run).or_on(hro::on_recordings::of_latency),
    scaled("hro-7", hro::SCALE, hro::seeks::run).or_on(hro::on_recordings::of_seeks),
    scaled("hro-8", hro::SCALE, hro::bandwidth::run).or_on(hro::on_recordings::of_bandwidth),
    scaled("hro-t2", hro::SCALE, hro::entry::run),
    scaled("dss-2", dss::FILE_SCALE, dss::contents::run),
    scaled("dss-3", dss::FILE_SCALE, dss::indicators::run),
    scaled("dss-4", dss::FILE_SCALE, dss::latencies::run),
    scaled("dss-email", dss::EMAIL_SCALE, dss::email::run),
    scaled("dss-fs", dss::FILE_SCALE, dss::utilities::run),
    scaled("dss-5", dss::TPCH_SCALE, dss::database::run),
    scaled("dss-tco", dss::FILE_SCALE, dss::tco::run),
    scaled("oodt-2", oodt::POSTMARK_SCALE, oodt::cost::run),
    scaled("oodt-4a", oodt::POSTMARK_SCALE, oodt::time::postmark),
    plain("oodt-4b", oodt::requests::sizes),
    plain("oodt-4c", oodt::requests::by_files),
    scaled("oodt-5a", oodt::TPCC_SCALE, oodt::time::tpcc),
    plain("oodt-5c", oodt::requests::fragmented),
    scaled("oodt-6a", oodt::TPCH_SCALE, oodt::time::tpch),
    scaled("oodt-7b", oodt::IOZONE_SCALE, oodt::time::iozone),
    scaled("oodt-8c", oodt::WEB_SCALE, oodt::time::web),
    scaled("oodt-5.1", oodt::POSTMARK_SCALE, oodt::memory::run),
    plain("oodt-9a-f", oodt::blocks::run),
    plain("oodt-10a", oodt::weights::run),
    plain("loris-t1", loris::table::run),
    scaled("loris-2-5", loris::SCALE, loris::hot::run).or_on(loris::on_recordings::of_hot),
    scaled("loris-6-9", loris::SCALE, loris::cold::run).or_on(loris::on_recordings::of_cold),
    scaled("loris-10-13", loris::SCALE, loris::caching::run)
        .or_on(loris::on_recordings::of_caching),
    scaled("loris-14", loris::SCALE, loris::mixed::run).or_on(loris::on_recordings::of_mixed),
];

impl Experiment {
    /// The experiment called `id`. The letters of a figure may be omitted or added, and a figure of a group selects the group.
    ///
    /// # Errors
    /// There is none. The message names the nearest one, or says that this build lacks it.
    pub fn find(id: &str) -> Result<&'static Experiment, String> {
        let entry = paper::find(id).ok_or_else(|| {
            let all = PAPERS.iter().flat_map(|p| p.experiments.iter());
            let near = nearest(id, all.map(|e| e.id.as_str()));
            format!("no experiment `{id}`; nearest: `{near}` (see `isotherm reproduce list`)")
        })?;
        EXPERIMENTS
            .iter()
            .find(|e| e.id == entry.id)
            .ok_or_else(|| {
                format!(
                    "`{}` is known and not in this build (see `isotherm reproduce list`)",
                    entry.id
                )
            })
    }

    /// Runs the experiment.
    ///
    /// # Errors
    /// A simulation failed.
    pub fn run(&self, ctx: &Ctx<'_>) -> Result<Outcome, LabError> {
        let entry = paper::find(self.id)
            .ok_or_else(|| LabError::setup(format!("{}: no such entry in the data", self.id)))?;
        let begun = Instant::now();
        let mut out = Outcome::new(entry);
        if !ctx.recordings.is_empty() {
            let run = self.on_recordings.ok_or_else(|| {
                LabError::setup(format!("{}: no recording of a mount shows it", self.id))
            })?;
            out.seed = ctx.seed;
            out.seeds = vec![ctx.seed];
            run(ctx, &mut out)?;
            out.wall_s = begun.elapsed().as_secs_f64();
            return Ok(out);
        }
        out.scale = self.scale.map(|s| ctx.scale_or(s));
        out.seed = ctx.seed;
        out.seeds = vec![ctx.seed];
        (self.run)(ctx, &mut out)?;
        out.wall_s = begun.elapsed().as_secs_f64();
        Ok(out)
    }

    /// Runs the experiment with each of these contexts, which have the same scale and different seeds, and judges the claims over all.
    ///
    /// # Errors
    /// A simulation failed.
    pub fn run_seeds(&self, seeds: &[Ctx<'_>]) -> Result<Outcome, LabError> {
        let (first, rest) = seeds
            .split_first()
            .ok_or_else(|| LabError::setup("seeds: at least one is needed"))?;
        let mut out = self.run(first)?;
        // A result of arithmetic is the same for every seed.
        if !out.claims.iter().all(|c| c.exact) {
            for ctx in rest {
                out.join(&self.run(ctx)?);
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_an_entry_and_ids_are_found_as_figures() {
        for e in EXPERIMENTS {
            assert_eq!(Experiment::find(e.id).map(|f| f.id), Ok(e.id));
        }
        for (typed, id) in [
            ("greendm-6.5a", "greendm-6.5"),
            ("greendm-6.5a-f", "greendm-6.5"),
            ("GreenDM-6.5a–f", "greendm-6.5"),
        ] {
            assert_eq!(Experiment::find(typed).map(|f| f.id), Ok(id));
        }
        let said = |id: &str| Experiment::find(id).map(|f| f.id).unwrap_err();
        assert!(said("greendm-6.55").contains("nearest: `greendm-6.5`"));
        // Every experiment in the papers' data files can be run.
        for entry in PAPERS.iter().flat_map(|p| &p.experiments) {
            assert_eq!(
                Experiment::find(&entry.id).map(|e| e.id),
                Ok(entry.id.as_str())
            );
        }
    }
}
