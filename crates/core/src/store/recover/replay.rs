//! Replays the journal after the checkpoint block by block, and checks whether it can be trusted.

use super::super::error::OpenError;
use super::super::heal::{Part, Repair, broken};
use super::super::journal::{self, BlockHeader, Tip};
use super::super::layout::RING_MIN;
use super::super::open::Report;
use super::super::superblock::State;
use super::super::{BLOCK, HEADER, Layout, Media};
use super::{CHUNK, From, Loaded, apply};
use crate::engine::Mutant;
use crate::units::MemberId;
use alloc::vec;
use alloc::vec::Vec;

/// Reads the ring in order of sequence numbers, in large pieces.
struct RingReader {
    member: MemberId,
    buf: Vec<u8>,
    from: u64,
    count: u64,
}

impl RingReader {
    fn new(member: MemberId) -> RingReader {
        RingReader {
            member,
            buf: vec![0; CHUNK * BLOCK],
            from: 0,
            count: 0,
        }
    }
    /// The block at the place of `seq`, whatever its content; `None` if the device fails there.
    fn block<M: Media + ?Sized>(
        &mut self,
        media: &mut M,
        layout: &Layout,
        seq: u64,
    ) -> Option<&[u8]> {
        if seq < self.from || seq >= self.from + self.count {
            let ring = u64::from(layout.area.ring_blocks);
            self.from = seq;
            self.count = (ring - seq % ring).min(CHUNK as u64);
            let buf = &mut self.buf[..self.count as usize * BLOCK];
            if media
                .read(self.member, layout.area.ring_offset(seq), buf)
                .is_err()
            {
                self.count = 0;
                // One bad sector must not make its neighbours unreadable.
                media
                    .read(
                        self.member,
                        layout.area.ring_offset(seq),
                        &mut self.buf[..BLOCK],
                    )
                    .ok()?;
                self.count = 1;
            }
        }
        let at = (seq - self.from) as usize * BLOCK;
        Some(&self.buf[at..at + BLOCK])
    }
}

/// Whether a block with this header is the next one of the journal.
fn continues<M: Media + ?Sized>(media: &M, from: &From<'_>, tip: &Tip, h: &BlockHeader) -> bool {
    let chained = tip.accepts(h)
        || (broken(media, Mutant::IgnoreChain)
            && h.seq == tip.next_seq
            && h.prev_epoch.unwrap_or(h.epoch) == tip.epoch);
    chained && (from.session.allows(h) || broken(media, Mutant::AllowLostSession))
}

pub(super) fn replay<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    loaded: &mut Loaded,
    report: &mut Report,
) -> Result<(), OpenError> {
    let ring = u64::from(from.layout.area.ring_blocks);
    let mut readers: Vec<RingReader> = from.sources.iter().map(|&m| RingReader::new(m)).collect();
    let start = loaded.tip.next_seq;
    let any_epoch = broken(media, Mutant::TrustOldClean);
    // Numbers that the first source lacks, and the number up to which all blocks were durable there.
    let (mut lacked, mut proven) = (Vec::new(), from.flushed);
    'blocks: while loaded.tip.next_seq < start + ring {
        for (k, r) in readers.iter_mut().enumerate() {
            let Some(b) = r.block(media, &from.layout, loaded.tip.next_seq) else {
                continue;
            };
            let h = journal::decode(b, &from.sb.uuid);
            let Some(h) = h.filter(|h| continues(media, from, &loaded.tip, h)) else {
                continue;
            };
            report.journal_records +=
                apply(from.sb, loaded, &b[HEADER..], report.was_clean, any_epoch)?;
            loaded.tip = loaded.tip.after(&h);
            loaded.lazy |= h.lazy && h.epoch == from.session.epoch;
            report.journal_blocks += 1;
            report.from_mirror += u64::from(r.member != from.layout.primary);
            if from.whole {
                proven = proven.max(h.last_flushed);
            }
            if k > 0 {
                lacked.push(h.seq);
            }
            continue 'blocks;
        }
        break;
    }
    report.proven = proven;
    no_hole(media, from, &mut readers, loaded.tip.next_seq, proven)?;
    no_doubt(media, from, &mut readers[0], loaded, &lacked, proven)?;
    // A round that only the mirror has is no damage: power was lost in the middle of the round.
    let damaged = lacked.iter().filter(|&&s| s <= proven).count() as u64;
    if damaged > 0 {
        report.repairs.push(Repair {
            member: from.sources[0],
            part: Part::Journal,
            blocks: damaged,
        });
    }
    if lacked.iter().any(|&s| s > proven) && broken(media, Mutant::RefuseMirrorAhead) {
        return Err(OpenError::JournalHole { seq: lacked[0] });
    }
    Ok(())
}

/// After the end there is a torn tail, or nothing. If any block or member says that the block at the end was durable, it is damaged.
fn no_hole<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    readers: &mut [RingReader],
    end: u64,
    proven: u64,
) -> Result<(), OpenError> {
    if broken(media, Mutant::PassHole) {
        return Ok(());
    }
    let hole = Err(OpenError::JournalHole { seq: end });
    if end <= proven {
        return hole;
    }
    let session = from.session;
    let ring = u64::from(from.layout.area.ring_blocks);
    // (On the mirror alone this holds only after a clean close: the mirror lags, so its torn tail may be before blocks that the primary had
    // flushed.)
    for r in readers.iter_mut().filter(|r| {
        r.member == from.layout.primary
            || from.whole
            || from.sb.state == State::Clean
            || session.sole
    }) {
        let primary = r.member == from.layout.primary;
        for seq in end..end + ring {
            let Some(b) = r.block(media, &from.layout, seq) else {
                continue;
            };
            // (A mirror that has become the only copy may hold more of the previous session than the chain up to here.)
            let counts = |h: &BlockHeader| primary || h.epoch == session.epoch;
            let later = journal::decode(b, &from.sb.uuid)
                .is_some_and(|h| h.seq > end && h.last_flushed >= end && counts(&h));
            if later {
                return hole;
            }
        }
    }
    Ok(())
}

/// The journal ends where neither copy continues. This is the true end only if the primary's end is visible: the newest block that was
/// certainly durable there must be complete; otherwise it is unknown which blocks followed it.
fn no_doubt<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    primary: &mut RingReader,
    loaded: &mut Loaded,
    lacked: &[u64],
    proven: u64,
) -> Result<(), OpenError> {
    let (start, end) = (loaded.checkpoint.start.next_seq, loaded.tip.next_seq);
    if from.sources.len() < 2 || primary.member != from.layout.primary {
        return Ok(());
    }
    let newest = proven.min(end - 1);
    let area = &from.layout.area;
    let doubtful = if newest >= start {
        lacked.contains(&newest)
    } else {
        // Nothing is proven since the checkpoint. But the ring was in use before, and no crash leaves nothing of it.
        loaded.void = start > 1
            && area.ring_blocks >= RING_MIN
            && !(end..end + u64::from(area.ring_blocks)).any(|seq| {
                primary
                    .block(media, &from.layout, seq)
                    .is_some_and(|b| journal::decode(b, &from.sb.uuid).is_some())
            });
        // It may have been found in this state when the session began.
        loaded.void && from.sb.void_at != end
    };
    let doubtful = doubtful && from.session.closed != Some(end);
    if doubtful && !broken(media, Mutant::PassHole) {
        return Err(OpenError::JournalEnd { seq: end });
    }
    Ok(())
}
