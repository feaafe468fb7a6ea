//! Simulated cells of an experiment: devices, policy and extent size under a workload. Each cell is run once, however many experiments ask
//! for it. (GreenDM also measures the machine around its drives, and has its own cells in `greendm/measure.rs`.)

use std::sync::{Arc, PoisonError};

use isotherm_models::{DeviceModel, FlashState, Options, Span, sheet};

use super::greendm::unflushed::Unflushed;
use super::{Ctx, Work};
use isotherm_lab::LabError;
use isotherm_lab::pool::try_parallel;
use isotherm_lab::sim::{Begin, Device, Model, Observe, Report, Run, Setup, Tier, TimeMode};
use isotherm_lab::size::Size;

/// A tier that consists of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// The device, as a preset.
    pub preset: &'static str,
    /// The part of the device that the tier uses.
    pub span: Span,
    /// The tier's share of the volume. The slowest tier can always hold the whole volume, and ignores this field.
    pub size: Size,
}

impl Store {
    /// The beginning of `preset`, with that size.
    pub fn new(preset: &'static str, size: Size) -> Store {
        Store {
            preset,
            span: Span::default(),
            size,
        }
    }

    /// The same tier spread over the whole device, so that seeks of a scaled-down workload are as long as in the original.
    #[must_use]
    pub fn spread(mut self) -> Store {
        self.span = Span::Full;
        self
    }

    /// The beginning of `preset`, which holds the whole volume.
    pub fn all(preset: &'static str) -> Store {
        Store::new(preset, Size::Share(1_000_000))
    }
}

/// The configuration that is measured under a workload.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The tiers, fastest first.
    pub tiers: Vec<Store>,
    /// Name and parameters, as on the command line.
    pub policy: String,
    /// Extent size in bytes.
    pub extent: u32,
    /// Number of requests before measuring begins.
    pub warm_up: u64,
    /// Whether FLUSH takes its time. `false`: FLUSH is free, for prototypes that keep no durable map (`greendm/unflushed.rs`).
    pub flushes: bool,
    /// The optional parts of the report.
    pub observe: Observe,
}

impl Cell {
    /// One device alone, with extents of 4 KiB.
    pub fn alone(preset: &'static str) -> Cell {
        Cell::hybrid("mylinear", vec![Store::all(preset)])
    }

    /// Several tiers under a policy, with extents of 4 KiB.
    pub fn hybrid(policy: &str, tiers: Vec<Store>) -> Cell {
        Cell {
            tiers,
            policy: policy.to_owned(),
            extent: 4096,
            warm_up: 0,
            flushes: true,
            observe: Observe::default(),
        }
    }

    /// The name that progress messages show.
    pub fn label(&self) -> String {
        match &self.tiers[..] {
            [alone] => alone.preset.to_owned(),
            _ => self.policy.clone(),
        }
    }

    fn setup(&self, depth: u32) -> Result<Setup, LabError> {
        let tier = |s: &Store| -> Result<Tier, LabError> {
            let device = Device {
                model: Model::Sheet(Box::new(sheet(s.preset)?)),
                options: Options {
                    span: s.span,
                    // The papers use a few GB of drives that are otherwise empty, so there is hardly any garbage collection.
                    flash: FlashState::Rated,
                    ..Options::default()
                },
                standby_after_s: None,
            };
            Ok(Tier::new(device, s.size))
        };
        Ok(Setup {
            tiers: self.tiers.iter().map(tier).collect::<Result<_, _>>()?,
            extent_bytes: self.extent,
            policy: self.policy.parse().map_err(LabError::Setup)?,
            time: TimeMode::Closed { depth },
            warm_up: self.warm_up,
            begin: Begin::default(),
            limit: None,
            seed: 0,
            host_w: 0.0,
            discards: true,
            observe: self.observe,
            settings: Vec::new(),
            qos: isotherm_core::qos::Spec::default(),
        })
    }
}

/// Runs `cells` under `work` in a closed loop, on all cores. A cell that was run before for this [`Ctx`] is not run again.
///
/// # Errors
/// A simulation fails, or the policy or preset of a cell is wrong.
pub fn simulate(ctx: &Ctx<'_>, work: &Work, cells: &[Cell]) -> Result<Vec<Arc<Report>>, LabError> {
    try_parallel(ctx.threads, cells, |cell| {
        let key = format!("{} {} {} {cell:?}", work.name, work.bytes, work.depth);
        let memo = || ctx.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(m) = memo().get(&key) {
            return Ok(m.clone());
        }
        (ctx.progress)(&format!(
            "{}: {}, extents of {} KiB",
            work.name,
            cell.label(),
            cell.extent >> 10
        ));
        let setup = cell.setup(work.depth)?;
        let run = Run::new(&setup, &work.memory).phases(&work.phases);
        let unflushed = |tier: u8, bytes: u64| -> Box<dyn DeviceModel> {
            let device = &setup.tiers[usize::from(tier)].devices[0];
            let options = Options {
                size: bytes,
                ..device.options
            };
            let sheet = device.sheet_for(bytes);
            match sheet.map(|s| s.model(&options)) {
                Ok(Ok(model)) => Box::new(Unflushed::new(model)),
                // The run has already used this sheet, and every preset in the tree has a model.
                _ => unreachable!("a preset of the tree cannot be modelled"),
            }
        };
        let run = if cell.flushes {
            run
        } else {
            run.models(&unflushed)
        };
        let report = Arc::new(run.full()?);
        memo().insert(key, report.clone());
        Ok(report)
    })
}
