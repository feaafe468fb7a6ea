//! The energy of the members, estimated from their data sheets.
//!
//! The estimate is the sum of four parts: idle power while a member is awake, the power in standby while it sleeps, the energy of each stop
//! and start, and the energy of each operation above the idle power. The last part follows the sheet's costs ([`Cost`]): that of a small
//! random operation, the share of it that a sequential one takes of the time, and that of each further byte. A disk has one arm: a read
//! that takes less time than the sheet says, because the disk chose a good order or had read ahead, takes as much less energy. The estimate
//! is as good as the sheet; `lab/tests/power.rs` compares it with the complete models.
//!
//! All values are integers, and they depend only on events, because the budget of power decides by them (`background/power.rs`).

use super::globals::Globals;
use crate::io::OpKind;
use crate::load::Cost;
use crate::units::Nanos;
use crate::volume::{Geometry, Member};
use alloc::vec;
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
    byte_pj: u64,
    sheet: Cost,
}

impl Rates {
    /// `None` if the sheet does not state the idle power.
    fn of(sheet: &Cost) -> Option<Rates> {
        if sheet.idle_uw == 0 {
            return None;
        }
        let share = |nj: u64, whole: Nanos| {
            let part = u128::from(nj) * u128::from(sheet.sequential.0) / u128::from(whole.0.max(1));
            u64::try_from(part).unwrap_or(u64::MAX).min(nj)
        };
        Some(Rates {
            random: [sheet.read_nj, sheet.write_nj],
            sequential: [
                share(sheet.read_nj, sheet.read),
                share(sheet.write_nj, sheet.write),
            ],
            byte_pj: sheet.byte_pj,
            sheet: *sheet,
        })
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
    /// By member: the energy of its operations above the idle power, nanojoules.
    worked: Vec<u64>,
}

impl Meter {
    /// `costs`: by tier, as far as data sheets are known. The estimate begins `now`.
    pub(super) fn new(costs: &[Cost], geo: &Geometry, now: Nanos) -> Meter {
        let rates = |m: &Member| costs.get(usize::from(m.tier.0)).and_then(Rates::of);
        Meter {
            begun: now,
            rates: geo.members.iter().map(rates).collect(),
            worked: vec![0; geo.members.len()],
        }
    }
    /// Whether the data sheets of all members are known.
    pub(super) fn is_complete(&self) -> bool {
        self.rates.iter().all(Option::is_some)
    }
    /// Number of members.
    pub(super) fn members(&self) -> usize {
        self.rates.len()
    }
    /// An operation of `len` bytes has ended. It took `took` of the device's time.
    #[inline]
    pub(super) fn work(
        &mut self,
        member: usize,
        (kind, len, sequential): (OpKind, u32, bool),
        took: Nanos,
    ) {
        let Some(r) = &self.rates[member] else {
            return;
        };
        let each = match kind {
            OpKind::Read if sequential => r.sequential[0],
            OpKind::Read => r.random[0],
            OpKind::Write | OpKind::WriteZeroes if sequential => r.sequential[1],
            OpKind::Write | OpKind::WriteZeroes => r.random[1],
            OpKind::Flush | OpKind::Discard | OpKind::Standby => return,
        };
        let bytes = u64::from(len.saturating_sub(SMALL)).saturating_mul(r.byte_pj) / 1000;
        let mut all = each.saturating_add(bytes);
        if kind == OpKind::Read && r.sheet.read >= MECHANICAL {
            all = all.min(r.arm_energy(took));
        }
        self.worked[member] = self.worked[member].saturating_add(all);
    }
}

impl Globals {
    /// The estimated energy of a member from the start of the engine until `now`, microjoules; `None`: it is missing, or its data sheet is
    /// unknown.
    pub(super) fn energy(&self, member: usize, now: Nanos) -> Option<u64> {
        let meter = &self.devices.meter;
        let rates = meter.rates[member].as_ref()?;
        let sheet = &rates.sheet;
        if self.devices.members[member].missing {
            return None;
        }
        let (m, count) = (
            &self.devices.members[member],
            &self.counters.members[member],
        );
        let (downs, wakes) = (count.spin_downs, m.sleep.wakes);
        let asleep = m.sleep.slept(now);
        let awake = now.since(meter.begun).since(asleep);
        let mut worked = meter.worked[member];
        if sheet.read >= MECHANICAL {
            worked = worked.min(rates.arm_energy(awake));
        }
        // Microwatts times nanoseconds are femtojoules.
        let power = |uw: u64, time: u64, less: Nanos, times: u64| {
            let time = time.saturating_sub(less.0.saturating_mul(times));
            u128::from(uw) * u128::from(time) / 1_000_000_000
        };
        let total = power(sheet.idle_uw, awake.0, sheet.wake, wakes)
            + power(sheet.standby_uw, asleep.0, sheet.down, downs)
            + u128::from(sheet.wake_uj) * u128::from(wakes)
            + u128::from(sheet.down_uj) * u128::from(downs)
            + u128::from(worked / 1000);
        Some(u64::try_from(total).unwrap_or(u64::MAX))
    }
    /// The estimated energy of all members whose data sheets are known, microjoules.
    pub(super) fn all_energy(&self, now: Nanos) -> u64 {
        (0..self.devices.members.len())
            .filter_map(|m| self.energy(m, now))
            .fold(0, u64::saturating_add)
    }
}
