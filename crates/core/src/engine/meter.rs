//! The energy of the members, estimated from their data sheets.
//!
//! The estimate is the sum of four parts: idle power while a member is awake, the power in standby while it sleeps, the energy of each stop
//! and start, and the energy of each operation above the idle power. The last part follows the sheet's costs ([`Cost`]): that of a small
//! random operation, the share of it that a sequential one takes of the time, and that of each further byte. A disk has one arm: a read
//! that takes less time than the sheet says, because the disk chose a good order or had read ahead, takes as much less energy. The estimate
//! is as good as the sheet; `lab/tests/power.rs` compares it with the complete models.
//!
//! All values are integers, and they depend only on events, because the budget of power decides by them (`background/power.rs`).

use super::devices::Op;
use super::globals::Globals;
use crate::io::OpKind;
use crate::load::Cost;
use crate::units::Nanos;
use crate::volume::{Geometry, Member};
use alloc::vec::Vec;

/// Bytes that the energy of a small operation includes.
const SMALL: u32 = 4096;

/// A device whose small random read takes at least this time is a disk.
const MECHANICAL: Nanos = Nanos::from_millis(1);

/// The energies of a member according to its data sheet.
#[derive(Clone, Copy, Debug)]
struct Rates {
    /// Random operations and sequential ones, each reads and writes, nanojoules.
    random: [u64; 2],
    sequential: [u64; 2],
    sheet: Cost,
}

impl Rates {
    fn of(sheet: &Cost) -> Rates {
        let share = |nj: u64, whole: Nanos| {
            let part = u128::from(nj) * u128::from(sheet.sequential.0) / u128::from(whole.0.max(1));
            u64::try_from(part).unwrap_or(u64::MAX).min(nj)
        };
        Rates {
            random: [sheet.read_nj, sheet.write_nj],
            sequential: [
                share(sheet.read_nj, sheet.read),
                share(sheet.write_nj, sheet.write),
            ],
            sheet: *sheet,
        }
    }
    /// Whether the sheet states the idle power, so that the energy of the member can be estimated.
    fn is_known(&self) -> bool {
        self.sheet.idle_uw != 0
    }
    /// The energy of an operation of `len` bytes that took `took` of the device's time, nanojoules.
    fn operation(&self, kind: OpKind, len: u32, sequential: bool, took: Nanos) -> u64 {
        let each = if sequential {
            &self.sequential
        } else {
            &self.random
        };
        let each = match kind {
            OpKind::Read => each[0],
            OpKind::Write | OpKind::WriteZeroes => each[1],
            OpKind::Flush | OpKind::Discard | OpKind::Standby => 0,
        };
        if each == 0 {
            // It takes none, or the sheet does not state it.
            return 0;
        }
        let bytes = u64::from(len.saturating_sub(SMALL)).saturating_mul(self.sheet.byte_pj) / 1000;
        let all = each.saturating_add(bytes);
        if kind == OpKind::Read && self.is_mechanical() {
            all.min(self.arm_energy(took))
        } else {
            all
        }
    }
    fn is_mechanical(&self) -> bool {
        self.sheet.read >= MECHANICAL
    }
    /// The energy above the idle power of random reads that fill the time `busy`, nanojoules.
    fn arm_energy(&self, busy: Nanos) -> u64 {
        let part = u128::from(self.sheet.read_nj) * u128::from(busy.0);
        u64::try_from(part / u128::from(self.sheet.read.0.max(1))).unwrap_or(u64::MAX)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    begun: Nanos,
    /// By member; `None`: its data sheet is unknown.
    rates: Vec<Option<Rates>>,
}

impl Meter {
    /// `costs`: by tier, as far as data sheets are known. The estimate begins `now`.
    pub(super) fn new(costs: &[Cost], geo: &Geometry, now: Nanos) -> Meter {
        let rates = |m: &Member| costs.get(usize::from(m.tier.0)).map(Rates::of);
        Meter {
            begun: now,
            rates: geo.members.iter().map(rates).collect(),
        }
    }
    /// Whether the data sheets of all members are known, with their idle power.
    pub(super) fn is_complete(&self) -> bool {
        let known = |r: &Option<Rates>| r.as_ref().is_some_and(Rates::is_known);
        self.rates.iter().all(known)
    }
    /// Number of members.
    pub(super) fn members(&self) -> usize {
        self.rates.len()
    }
}

impl Globals {
    /// Time since the start of the engine for which a member was awake.
    fn awake(&self, member: usize, now: Nanos) -> Nanos {
        let asleep = self.devices.members[member].sleep.slept(now);
        now.since(self.devices.meter.begun).since(asleep)
    }
    /// The energy of an operation that has ended, nanojoules. It is the only one: members and classes count the same. The operations of a
    /// disk take no more than an arm that moved all the time.
    #[inline]
    pub(super) fn energy_of(&self, op: &Op, took: Nanos) -> u64 {
        let m = op.member();
        let Some(rates) = &self.devices.meter.rates[m] else {
            return 0;
        };
        let all = rates.operation(op.op.kind, op.op.len, op.sequential, took);
        if all == 0 || !rates.is_mechanical() {
            return all;
        }
        let most = rates.arm_energy(self.awake(m, self.clock));
        all.min(most.saturating_sub(self.counters.members[m].energy_nj))
    }
    /// The estimated energy of a member from the start of the engine until `now`, microjoules; `None`: it is missing, or its data sheet is
    /// unknown.
    pub(super) fn energy(&self, member: usize, now: Nanos) -> Option<u64> {
        let rates = self.devices.meter.rates[member].as_ref()?;
        let sheet = &rates.sheet;
        let m = &self.devices.members[member];
        if m.missing || !rates.is_known() {
            return None;
        }
        let count = &self.counters.members[member];
        let (downs, wakes) = (count.spin_downs, m.sleep.wakes);
        let (awake, asleep) = (self.awake(member, now), m.sleep.slept(now));
        // Microwatts times nanoseconds are femtojoules.
        let power = |uw: u64, time: u64, less: Nanos, times: u64| {
            let time = time.saturating_sub(less.0.saturating_mul(times));
            u128::from(uw) * u128::from(time) / 1_000_000_000
        };
        let total = power(sheet.idle_uw, awake.0, sheet.wake, wakes)
            + power(sheet.standby_uw, asleep.0, sheet.down, downs)
            + u128::from(sheet.wake_uj) * u128::from(wakes)
            + u128::from(sheet.down_uj) * u128::from(downs)
            + u128::from(count.energy_nj / 1000);
        Some(u64::try_from(total).unwrap_or(u64::MAX))
    }
    /// The estimated energy of all members whose data sheets are known, microjoules.
    pub(super) fn all_energy(&self, now: Nanos) -> u64 {
        (0..self.devices.members.len())
            .filter_map(|m| self.energy(m, now))
            .fold(0, u64::saturating_add)
    }
}
