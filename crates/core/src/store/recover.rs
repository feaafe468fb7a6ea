//! Recovery: loads the newest complete checkpoint, then replays the journal. Blocks that are damaged on the primary are read from the
//! mirror.

mod copies;
mod loaded;
mod replay;

pub(super) use loaded::{CHUNK, From, Loaded};

use super::checkpoint::{self, Header};
use super::counter::Known;
use super::error::OpenError;
use super::mutants::broken;
use super::report::{Part, Repair, Report};
use super::{BLOCK, Carrier, HEADER, Media};
use crate::mutants::Mutant;
use crate::units::ExtentId;
use alloc::vec;
use alloc::vec::Vec;
use loaded::{Trust, apply};
use replay::replay;

/// Loads the newest checkpoint that is complete, combined from primary and mirror if needed, and replays the journal from it. If that
/// fails, older checkpoints are tried.
pub(super) fn load<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    report: &mut Report,
) -> Result<Loaded, OpenError> {
    let candidates = candidates(media, from);
    let highest = candidates.iter().map(|c| c.0.number).max().unwrap_or(0);
    let mut why = None;
    // The loss of records is accepted only if no older checkpoint can be used without a loss.
    for accept in [false, true] {
        if accept && !from.accept_loss {
            break;
        }
        for (h, m, counters) in &candidates {
            let mut loaded = Loaded::new(from, *h, highest, counters.clone())?;
            media.map_made(&loaded.space.map);
            let mut r = Report {
                from_mirror: u64::from(*m != from.layout.primary),
                ..report.clone()
            };
            match attempt(media, from, accept, &mut loaded, &mut r) {
                Ok(()) => {
                    *report = r;
                    return Ok(loaded);
                }
                // The error of the newest checkpoint is the most useful one. If the loss was accepted, it is the error of that attempt.
                Err(e) if why.is_none() || (accept && h.number == highest) => why = Some(e),
                Err(_) => {}
            }
        }
    }
    Err(why.unwrap_or(OpenError::NoCheckpoint))
}

/// The checkpoint headers that were found, newest first. Of two equal headers, the one of the first source is kept.
fn candidates<M: Media + ?Sized>(media: &mut M, from: &From<'_>) -> Vec<(Header, Carrier, Known)> {
    let mut candidates: Vec<(Header, Carrier, Known)> = Vec::new();
    let mut block = vec![0; BLOCK];
    for &m in from.sources {
        for region in 0..2 {
            let at = from.layout.region_offset(m, region);
            if media.read(m.member, at, &mut block).is_ok()
                && let Some(h) = Header::decode(&block, &from.sb.uuid)
                    .filter(|h| Header::region(h.number) == region)
                && !candidates.iter().any(|c| c.0 == h)
            {
                let known = Header::counters(&block).unwrap_or_default();
                candidates.push((h, m, known));
            }
        }
    }
    candidates.sort_by_key(|(h, m, _)| (core::cmp::Reverse(h.number), *m != from.sources[0]));
    candidates
}

fn attempt<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    accept: bool,
    loaded: &mut Loaded,
    report: &mut Report,
) -> Result<(), OpenError> {
    read_checkpoint(media, from, accept, loaded, report)?;
    replay(media, from, loaded, report)?;
    report.lost_extents = loaded.lost_extents();
    let twice = |_| OpenError::BadRecord(copies::TWICE);
    loaded.space.rebuild().map_err(twice)?;
    loaded.copies.finish(&mut loaded.space)
}

/// Reads and applies the data blocks of a checkpoint, each from the first source that has it complete.
fn read_checkpoint<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    accept: bool,
    loaded: &mut Loaded,
    report: &mut Report,
) -> Result<(), OpenError> {
    let (h, area, uuid) = (loaded.checkpoint, from.layout.area, &from.sb.uuid);
    if h.blocks >= area.region_blocks {
        return Err(OpenError::NoCheckpoint);
    }
    let place = |m: Carrier, i: u32| from.layout.checkpoint_block(m, h.number, i);
    let mut buf = vec![0; CHUNK * BLOCK];
    let early = u64::from(!broken(media, Mutant::CountVoidClaims));
    let at = h.start.next_seq.saturating_sub(early);
    let trust = Trust::of(media, from, report, at);
    // The start of a range of extents whose records are lost, and the last extent of the blocks before it.
    let (mut gap, mut last) = (None, None);
    let mut i = 0;
    while i < h.blocks {
        let n = (h.blocks - i).min(CHUNK as u32);
        let buf = &mut buf[..n as usize * BLOCK];
        let first = from.sources[0];
        let read = media.read(first.member, place(first, i), buf).is_ok();
        for b in buf.chunks_exact_mut(BLOCK) {
            let mut whole = read && checkpoint::is_data(b, uuid, h.number, i);
            for (k, &m) in from.sources.iter().enumerate() {
                if whole {
                    break;
                }
                // The large read failed. Each block is read alone, so that one bad sector does not make its neighbours unreadable.
                whole = (k > 0 || !read)
                    && media.read(m.member, place(m, i), b).is_ok()
                    && checkpoint::is_data(b, uuid, h.number, i);
                if !whole {
                    loaded.bad.push((m, i));
                }
                report.from_mirror += u64::from(whole && k > 0);
            }
            if whole {
                loaded.stated = None;
                report.checkpoint_records += apply(from.sb, loaded, &b[HEADER..], trust)?;
                if let Some((first, end)) = loaded.stated {
                    if let Some(start) = gap.take() {
                        loaded.gap(start, first);
                    }
                    last = Some(end);
                }
            } else {
                loaded.gaps.push(i);
                gap.get_or_insert(last.map_or(0, |e| e + 1));
            }
            i += 1;
        }
    }
    if let Some(start) = gap {
        loaded.gap(start, from.sb.extents);
    }
    if let Some(&(first, end)) = loaded.lost.first().filter(|_| !accept) {
        return Err(OpenError::CheckpointLost {
            number: h.number,
            first: ExtentId(first),
            end: ExtentId(end),
        });
    }
    report.checkpoint = h.number;
    for &m in from.sources {
        let blocks = loaded.bad.iter().filter(|b| b.0 == m).count() as u64;
        if blocks > 0 {
            let part = Part::Checkpoint;
            report.repairs.push(Repair {
                member: m.member,
                part,
                blocks,
            });
        }
    }
    Ok(())
}
