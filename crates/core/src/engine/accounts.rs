//! What the devices' work was for: time, bytes, energy and wear by class of data.
//!
//! An operation of a request is its class's; a move is that of the extent that it carries, and one that carries several is divided among
//! them. What is left (metadata, discards, looks from inside) is the volume's own, so that all of it together is what the devices did.

use super::devices::{Op, What};
use super::ground::Ground;
use super::relocation::Relocation;
use crate::io::{OpKind, QUIET};
use crate::load::Cost;
use crate::stats::{CLASSES, Work};
use crate::units::{ExtentId, Nanos, TierId};

/// Bytes whose energy is part of an operation's own in [`Cost`].
const SMALL: u64 = 4096;

impl Ground {
    /// The class that work on an extent is for, when no request says it.
    pub(super) fn account_class(&self, e: ExtentId) -> u8 {
        match self.space.class(e) {
            0 => self.learned.get(e.0 as usize).copied().unwrap_or(0),
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

/// Joules beyond idling as the sheet has them for a random operation; of one that goes on where the last ended, the part that its time
/// is of a random one's.
fn energy(cost: &Cost, op: &Op) -> u64 {
    let (each, random) = match op.op.kind {
        OpKind::Read => (cost.read_nj, cost.read),
        OpKind::Write => (cost.write_nj, cost.write),
        _ => return 0,
    };
    if each == 0 {
        // The sheet does not say.
        return 0;
    }
    let each = if op.sequential && cost.sequential < random {
        (u128::from(each) * u128::from(cost.sequential.0) / u128::from(random.0.max(1))) as u64
    } else {
        each
    };
    each + u64::from(op.op.len).saturating_sub(SMALL) * cost.byte_pj / 1000
}

impl Relocation {
    /// An operation ended that a device had for itself for so long.
    pub(super) fn charge(&self, g: &mut Ground, op: &Op, took: Nanos) {
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
            energy_nj: energy(&cost, op),
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
