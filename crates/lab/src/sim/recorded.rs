//! The volume of a recording: a run on it begins in the state in which the recording of a live volume began, with the same map, the same
//! places on the devices and the same parameters. Only the devices are models. So a run in the lab and the recorded one differ in nothing
//! but the time that operations take.

use std::path::Path;

use isotherm_core::engine::Params;
use isotherm_core::policy::Policy;
use isotherm_core::store::{Opened, Superblock};
use isotherm_core::{Engine, Nanos};
use isotherm_events::Reader;
use isotherm_models::{Counters, DeviceModel, ModelOp, Wear};

use super::setup::{Setup, check_setting};
use super::shape::{Drive, Place, Shape, member_name};
use crate::LabError;
use crate::policy_spec::PolicySpec;

/// See the module.
pub struct Recorded {
    opened: Opened,
    params: Params,
    policy: String,
}

impl Recorded {
    /// Opens the volume of the recording at `path`.
    ///
    /// # Errors
    /// The file is not a recording of events, or its state cannot be opened.
    pub fn open(path: &Path) -> Result<Recorded, LabError> {
        let failed = |e: &dyn std::fmt::Display| {
            LabError::setup(format!(
                "{}: {e}: `isotherm record --events` writes such a file",
                path.display()
            ))
        };
        let mut reader = Reader::open(path).map_err(|e| failed(&e))?;
        let opened = crate::parity::opened(&mut reader).map_err(|e| failed(&e))?;
        let origin = reader.origin();
        Ok(Recorded {
            opened,
            params: origin.params.clone(),
            policy: origin.policy.clone(),
        })
    }

    /// The policy of the recorded volume.
    ///
    /// # Errors
    /// This program has no such policy.
    pub fn policy(&self) -> Result<PolicySpec, LabError> {
        self.policy.parse().map_err(LabError::setup)
    }

    /// Extent size in bytes.
    pub fn extent_bytes(&self) -> u32 {
        self.opened.space.geo.extent_bytes()
    }

    /// Number of members of each tier, fastest first.
    pub fn members(&self) -> Vec<usize> {
        let mut members = Vec::new();
        for m in &self.superblock().members {
            let tier = usize::from(m.tier.0);
            members.resize(members.len().max(tier + 1), 0);
            members[tier] += 1;
        }
        members
    }

    pub(super) fn superblock(&self) -> &Superblock {
        &self.opened.superblock
    }

    /// The time at which the recorded engine began, and the time of the models then.
    pub(super) fn begun(&self) -> Nanos {
        self.opened.time_base
    }

    /// The shape of the recorded volume, whose rows are its extents.
    ///
    /// # Errors
    /// `setup` has other tiers, or another extent size.
    pub(super) fn shape(&self, setup: &Setup) -> Result<Shape, LabError> {
        let (sb, counts) = (self.superblock(), self.members());
        let given: Vec<usize> = setup.tiers.iter().map(|t| t.devices.len()).collect();
        if given != counts {
            return Err(LabError::setup(format!(
                "the recorded volume has {counts:?} members on its tiers, and devices are given for {given:?}"
            )));
        }
        if setup.extent_bytes != self.extent_bytes() {
            return Err(LabError::setup(format!(
                "extent: the recorded volume has extents of {} bytes",
                self.extent_bytes()
            )));
        }
        let mut seen = vec![0; counts.len()];
        let members = sb.members.iter().map(|m| {
            let tier = usize::from(m.tier.0);
            seen[tier] += 1;
            Place {
                tier: m.tier.0,
                index: seen[tier] - 1,
                name: member_name(setup, tier, seen[tier] - 1),
                slots: m.slots,
            }
        });
        let members: Vec<Place> = members.collect();
        let fast = members
            .iter()
            .filter(|m| m.tier == 0)
            .map(|m| u64::from(m.slots));
        Ok(Shape {
            kind: sb.kind,
            extents: u64::from(sb.extents),
            shift: sb.extent_shift,
            fast_bytes: fast.sum::<u64>() << sb.extent_shift,
            members,
            from: Some(0),
            padded: None,
        })
    }

    /// The engine in its recorded state, over the drives of `setup`.
    pub(super) fn build<'a>(
        self,
        shape: &Shape,
        setup: &'a Setup,
        policy: Box<dyn Policy>,
    ) -> Result<(Engine, Vec<Drive<'a>>), LabError> {
        let mut drives = Vec::new();
        for (place, entry) in shape.members.iter().zip(&self.superblock().members) {
            let device = &setup.tiers[usize::from(place.tier)].devices[place.index];
            let sheet = device.sheet_for(entry.bytes)?;
            drives.push(Drive::on_tier(device, sheet, entry.bytes, place.tier));
        }
        let mut params = Params {
            unread_metadata: true,
            ..self.params
        };
        let timers: Vec<Option<f64>> = drives.iter().map(|d| d.device.standby_after_s).collect();
        if timers.iter().any(Option::is_some) {
            let nanos = |s: f64| Nanos((s * 1e9) as u64);
            params.standby_after = timers.iter().map(|s| s.map(nanos)).collect();
            params.start_intervals = drives.iter().map(|d| d.sheet.start_interval()).collect();
        }
        let mut engine = Engine::new(self.opened, policy, params);
        for (name, value) in &setup.settings {
            check_setting(name, *value).map_err(LabError::setup)?;
            let set = engine.set(name, *value);
            set.map_err(|e| LabError::setup(format!("{name}: {e:?}")))?;
        }
        engine.promise(setup.qos.clone());
        Ok((engine, drives))
    }
}

/// A model whose clock begins later than the engine's: a volume that was served before goes on with its time, and its devices are new.
pub(super) struct Late {
    model: Box<dyn DeviceModel>,
    begun: Nanos,
}

impl Late {
    /// `model`, whose time 0 is `begun`.
    pub fn new(model: Box<dyn DeviceModel>, begun: Nanos) -> Late {
        Late { model, begun }
    }

    fn own(&self, now: Nanos) -> Nanos {
        now.since(self.begun)
    }
}

impl DeviceModel for Late {
    fn start(&mut self, now: Nanos, id: u64, op: ModelOp, offset: u64, len: u32) {
        self.model.start(self.own(now), id, op, offset, len);
    }
    fn start_timed(&mut self, now: Nanos, op: ModelOp, offset: u64, len: u32) -> Option<Nanos> {
        let end = self.model.start_timed(self.own(now), op, offset, len)?;
        Some(self.begun + end)
    }
    fn next_event(&self) -> Option<Nanos> {
        Some(self.begun + self.model.next_event()?)
    }
    fn poll(&mut self, now: Nanos, done: &mut Vec<u64>) {
        self.model.poll(self.own(now), done);
    }
    fn counters(&self, now: Nanos) -> Counters {
        self.model.counters(self.own(now))
    }
    fn wear(&self) -> Wear {
        self.model.wear()
    }
    fn set_reads_per_write(&mut self, reads: f64) {
        self.model.set_reads_per_write(reads);
    }
    fn capacity(&self) -> u64 {
        self.model.capacity()
    }
}
