//! Repair of a volume's metadata without beginning a session (`check --repair`).

use super::checkpoint::{self, Header};
use super::error::OpenError;
use super::found::{Mode, look};
use super::heal::{self, resync};
use super::open::renew_marks;
use super::recover::Loaded;
use super::report::{Part, Repair};
use super::superblock::Superblock;
use super::{BLOCK, Layout, Media};
use alloc::vec;
use alloc::vec::Vec;

/// Repairs blocks that are damaged in one place and complete in another, without beginning a session. `found` is the same as for
/// [`super::open::open`]; all members must be present. Returns the repairs.
///
/// # Errors
/// The same as for opening. A block that is complete nowhere cannot be repaired.
pub fn mend<M: Media + ?Sized>(
    media: &mut M,
    found: &[Option<Superblock>],
) -> Result<Vec<Repair>, OpenError> {
    let mut f = look(media, found, Mode::ReadWrite { epoch: 0 })?;
    let mut loaded = f.load(media, false)?;
    f.evidence.mend(media, &f.sb)?;
    // Recovery has read the second member only for blocks that the first one lacks.
    let others = more_bad(media, &f.sb, f.layout, &mut loaded);
    f.report.repairs.extend(others);
    let wrote = resync(media, &f.sb, f.layout, f.session, &loaded)?;
    renew_marks(media, &f.sb, &loaded.space)?;
    for (c, blocks) in f.layout.carriers().zip(wrote) {
        let m = c.member;
        let known = |r: &Repair| r.member == m && r.part == Part::Journal;
        if blocks > 0 && !f.report.repairs.iter().any(known) {
            let part = Part::Journal;
            f.report.repairs.push(Repair {
                member: m,
                part,
                blocks,
            });
        }
    }
    heal::mend_superblocks(media, &f.sb, found, &f.report.missing)?;
    Ok(f.report.repairs)
}

/// Finds damaged blocks of the checkpoint in use that recovery did not read.
fn more_bad<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    layout: Layout,
    loaded: &mut Loaded,
) -> Vec<Repair> {
    let h = loaded.checkpoint;
    let mut repairs = Vec::new();
    let mut b = vec![0; BLOCK];
    for c in layout.carriers() {
        let (m, base) = (c.member, layout.region_offset(c, Header::region(h.number)));
        // If the header is damaged, the whole region is copied anyway.
        if media.read(m, base, &mut b).is_err() || Header::decode(&b, &sb.uuid) != Some(h) {
            let part = Part::CheckpointHeader;
            repairs.push(Repair {
                member: m,
                part,
                blocks: 1,
            });
            continue;
        }
        let mut blocks = 0;
        for i in 0..h.blocks {
            let at = base + (1 + u64::from(i)) * BLOCK as u64;
            let whole =
                media.read(m, at, &mut b).is_ok() && checkpoint::is_data(&b, &sb.uuid, h.number, i);
            if !whole && !loaded.bad.contains(&(c, i)) {
                loaded.bad.push((c, i));
                blocks += 1;
            }
        }
        if blocks > 0 {
            let part = Part::Checkpoint;
            repairs.push(Repair {
                member: m,
                part,
                blocks,
            });
        }
    }
    repairs
}
