//! The devices' work by class of data: time, bytes, energy and wear.
//!
//! An operation of a request counts for the request's class. A move counts for the class of its extent; a joined operation is divided among
//! its extents. The rest (metadata, discards, reads of the program itself) is the volume's own, so that the sum of all is the devices'
//! work.

use super::devices::{Op, What};
use super::globals::Globals;
use super::relocation::Relocation;
use crate::io::{OpKind, QUIET};
use crate::stats::{CLASSES, Work};
use crate::units::{ExtentId, Nanos, TierId};

impl Globals {
    /// The class of work on an extent, if no request states it.
    pub(super) fn account_class(&self, e: ExtentId) -> u8 {
        match self.space.class(e) {
            0 => self.learned.get(e),
            known => known,
        }
    }

    fn charge(&mut self, class: u8, tier: TierId, work: &Work) {
        let tiers = if class & QUIET == 0 {
            let c = &mut self.counters.classes[usize::from(class) % CLASSES];
            &mut **c.work.get_or_insert_default()
        } else {
            &mut self.counters.own_work
        };
        tiers[usize::from(tier.0)].add(work);
    }
}

impl Relocation {
    /// Charges an operation that has ended to its class. `took` is the time for which it occupied its device, `energy_nj` its energy.
    pub(super) fn charge(&self, g: &mut Globals, op: &Op, (took, energy_nj): (Nanos, u64)) {
        let tier = g.space.geo.members[op.member()].tier;
        let cost = g.space.loads.cost(tier);
        let (len, kind) = (u64::from(op.op.len), op.op.kind);
        let written = if matches!(kind, OpKind::Write | OpKind::WriteZeroes) {
            len
        } else {
            0
        };
        let work = Work {
            ops: 1,
            bytes_read: if kind == OpKind::Read { len } else { 0 },
            bytes_written: written,
            busy: took,
            energy_nj,
            wear_fusd: written.saturating_mul(cost.wear_byte_fusd),
        };
        match op.what {
            What::Data { class, .. } => g.charge(class, tier, &work),
            What::Fill { ext, .. } => {
                let class = g.account_class(ExtentId(ext));
                g.charge(class, tier, &work);
            }
            What::Move { index, count } => {
                let n = u64::from(count.max(1));
                for i in 0..count {
                    let class = g.account_class(self.get(index + i).extent);
                    g.charge(class, tier, &work.part(u64::from(i), n));
                }
            }
            What::Round | What::Trim { .. } | What::Standby => g.charge(QUIET, tier, &work),
        }
    }
}
