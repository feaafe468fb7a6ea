//! What the members state about each other. From this follows whether a member is an older copy of itself, and which blocks must be in the
//! journal.

use super::counter::{self, Counter, Known, learn};
use super::error::OpenError;
use super::report::{Part, Repair};
use super::session::Session;
use super::superblock::Superblock;
use super::{BLOCK, Media, MediaError};
use crate::units::MemberId;
use alloc::vec;
use alloc::vec::Vec;

/// The counter that is stored on a member.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    there: bool,
    /// The higher value of its complete blocks; 0 if there is none.
    value: u64,
    /// Number of blocks that are not complete.
    damaged: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Evidence {
    /// For each member, the highest value of its counter that any member states.
    pub(super) known: Known,
    own: Vec<Own>,
    /// Every journal block up to this number was durable on each member that carries the metadata.
    pub(super) flushed: u64,
}

impl Evidence {
    /// Reads the statements of superblocks and counters. `whole`: every member that carried metadata in the last session is present, so the
    /// journal to which the counters refer is present.
    pub(super) fn gather<M: Media + ?Sized>(
        media: &mut M,
        sb: &Superblock,
        found: &[Option<Superblock>],
        missing: &[MemberId],
        session: Session,
        whole: bool,
    ) -> Evidence {
        let mut e = Evidence {
            known: Known::new(),
            own: vec![Own::default(); sb.members.len()],
            flushed: session.first_seq.saturating_sub(1),
        };
        if let Some(next) = session.closed {
            e.flushed = e.flushed.max(next.saturating_sub(1));
        }
        for s in found.iter().flatten().filter(|s| s.uuid == sb.uuid) {
            s.members
                .iter()
                .for_each(|m| learn(&mut e.known, m.id, m.counter));
        }
        for i in 0..sb.members.len() {
            let m = MemberId(i as u8);
            if missing.contains(&m) {
                continue;
            }
            let own = &mut e.own[i];
            own.there = true;
            for c in read(media, sb, m) {
                let Some(c) = c else {
                    own.damaged += 1;
                    continue;
                };
                own.value = own.value.max(c.value);
                for &(id, value) in &c.known {
                    learn(&mut e.known, id, value);
                }
                if whole && c.epoch == session.epoch {
                    e.flushed = e.flushed.max(c.last_flushed);
                }
            }
            learn(&mut e.known, sb.members[i].id, own.value);
        }
        // Members that are gone prove nothing, and there is room for the values of those in use only.
        e.known.retain(|k| sb.members.iter().any(|m| m.id == k.0));
        e
    }

    /// Checks that no member is an older copy of itself. A damaged block may have had the newer value, so a member with a damaged block is
    /// not refused.
    pub(super) fn no_rollback(&self, sb: &Superblock) -> Result<(), OpenError> {
        for (i, (own, m)) in self.own.iter().zip(&sb.members).enumerate() {
            let known = self.of(m.id);
            if own.there && own.damaged == 0 && own.value < known {
                return Err(OpenError::RolledBack {
                    member: MemberId(i as u8),
                    counter: own.value,
                    known,
                });
            }
        }
        Ok(())
    }

    /// The highest value of this member's counter that any member states.
    fn of(&self, id: u16) -> u64 {
        self.known.iter().find(|k| k.0 == id).map_or(0, |k| k.1)
    }

    /// The counters that have damaged blocks.
    pub(super) fn repairs(&self) -> impl Iterator<Item = Repair> + '_ {
        let damaged = (0u8..).zip(&self.own).filter(|(_, o)| o.damaged > 0);
        damaged.map(|(i, o)| Repair {
            member: MemberId(i),
            part: Part::Counter,
            blocks: u64::from(o.damaged),
        })
    }

    /// Writes damaged counters again, with a value above every known value.
    pub(super) fn mend<M: Media + ?Sized>(
        &mut self,
        media: &mut M,
        sb: &Superblock,
    ) -> Result<(), MediaError> {
        for i in 0..self.own.len() {
            if self.own[i].damaged == 0 {
                continue;
            }
            let m = MemberId(i as u8);
            let id = sb.members[i].id;
            let value = self.of(id) + 1;
            // The lower value is written first. If the power fails between the two writes, the other block is still damaged, and the repair
            // is done again.
            for value in [value - 1, value] {
                let c = Counter::of(sb, m, value, self.flushed, &self.known);
                media.write(m, counter::offset(value), &c.encode(&sb.uuid))?;
                media.flush(m)?;
            }
            learn(&mut self.known, id, value);
            self.own[i] = Own {
                there: true,
                value,
                damaged: 0,
            };
        }
        Ok(())
    }
}

/// The two blocks of a member's counter; `None` for a block that is not complete.
fn read<M: Media + ?Sized>(media: &mut M, sb: &Superblock, m: MemberId) -> [Option<Counter>; 2] {
    let entry = &sb.members[usize::from(m.0)];
    [0, 1].map(|v| {
        let mut b = vec![0; BLOCK];
        media.read(m, counter::offset(v), &mut b).ok()?;
        Counter::decode(&b, &sb.uuid)
            .filter(|c| c.value % 2 == v && c.member == entry.id && c.uuid == entry.uuid)
    })
}

/// Raises every member's counter durably above all known values, and stores the new values in `known`. For a volume that is not being
/// served.
pub(super) fn raise_all<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    last_flushed: u64,
    known: &mut Known,
) -> Result<(), MediaError> {
    for i in 0..sb.members.len() {
        let (m, id) = (MemberId(i as u8), sb.members[i].id);
        if sb.is_absent(m) {
            continue;
        }
        for c in read(media, sb, m).into_iter().flatten() {
            learn(known, id, c.value);
        }
        let value = known.iter().find(|k| k.0 == id).map_or(0, |k| k.1) + 1;
        let c = Counter::of(sb, m, value, last_flushed, known);
        media.write(m, counter::offset(value), &c.encode(&sb.uuid))?;
        media.flush(m)?;
        learn(known, id, value);
    }
    Ok(())
}
