//! Replays the journal from the checkpoint on, block by block, and checks whether blocks are missing at its end.

use super::super::error::OpenError;
use super::super::journal::{self, BlockHeader, Tip};
use super::super::layout::RING_MIN;
use super::super::mutants::broken;
use super::super::report::{Part, Repair, Report};
use super::super::superblock::{Follow, State};
use super::super::{BLOCK, Carrier, HEADER, Layout, Media};
use super::loaded::{CHUNK, From, Loaded, Trust, apply};
use crate::mutants::Mutant;
use alloc::vec;
use alloc::vec::Vec;

/// Reads the ring in the order of sequence numbers, many blocks at a time.
struct RingReader {
    carrier: Carrier,
    buf: Vec<u8>,
    from: u64,
    count: u64,
}

impl RingReader {
    fn new(carrier: Carrier) -> RingReader {
        RingReader {
            carrier,
            buf: vec![0; CHUNK * BLOCK],
            from: 0,
            count: 0,
        }
    }
    /// The block at the place of `seq`, whatever it contains; `None` if the device cannot read it.
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
                .read(
                    self.carrier.member,
                    layout.ring_offset(self.carrier, seq),
                    buf,
                )
                .is_err()
            {
                self.count = 0;
                // The block is read alone, so that one bad sector does not make its neighbours unreadable.
                media
                    .read(
                        self.carrier.member,
                        layout.ring_offset(self.carrier, seq),
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
    let trust = Trust::of(media, from, report, start);
    // The numbers of the blocks that the first source lacks, and the number up to which all blocks are known to have been durable there.
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
                apply(from.sb, loaded, &b[HEADER..], Trust { at: h.seq, ..trust })?;
            loaded.tip = loaded.tip.after(&h);
            report.journal_blocks += 1;
            report.from_mirror += u64::from(r.carrier != from.layout.primary);
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
    not_longer(media, from, &mut readers, loaded)?;
    no_hole(media, from, &mut readers, loaded.tip.next_seq, proven)?;
    no_doubt(media, from, &mut readers[0], loaded, &lacked, proven)?;
    // Later blocks that only the mirror has are not damaged on the primary: the power was lost in the middle of a round.
    let damaged = lacked.iter().filter(|&&s| s <= proven).count() as u64;
    if damaged > 0 {
        report.repairs.push(Repair {
            member: from.sources[0].member,
            part: Part::Journal,
            blocks: damaged,
        });
    }
    if lacked.iter().any(|&s| s > proven) && broken(media, Mutant::RefuseMirrorAhead) {
        return Err(OpenError::JournalHole { seq: lacked[0] });
    }
    Ok(())
}

/// Checks that the journal since this checkpoint fits into the ring. Where a mirror that lags still has the block of this checkpoint's start,
/// the primary may already have the next round of the ring in its place: that block belongs to the journal, and this checkpoint is too old.
fn not_longer<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    readers: &mut [RingReader],
    loaded: &Loaded,
) -> Result<(), OpenError> {
    let (start, tip) = (loaded.checkpoint.start.next_seq, &loaded.tip);
    let full = tip.next_seq >= start + u64::from(from.layout.area.ring_blocks);
    let goes_on = |r: &mut RingReader, media: &mut M| {
        let b = r.block(media, &from.layout, tip.next_seq);
        let h = b.and_then(|b| journal::decode(b, &from.sb.uuid));
        h.is_some_and(|h| continues(media, from, tip, &h))
    };
    if full
        && !broken(media, Mutant::EndAtFullRing)
        && readers.iter_mut().any(|r| goes_on(r, media))
    {
        return Err(OpenError::JournalHole { seq: start });
    }
    Ok(())
}

/// Checks that the journal ends with a torn block or with none. If another block or a member states that the block at the end was durable,
/// it is damaged.
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
    // If only the mirror is present, this check is possible only after a clean close (or if it was complete otherwise). A mirror that lags
    // may have a torn block although the primary had already flushed later blocks.
    for r in readers.iter_mut().filter(|r| {
        r.carrier == from.layout.primary
            || from.whole
            || from.sb.state == State::Clean
            || session.sole
    }) {
        let primary = r.carrier == from.layout.primary;
        for seq in end..end + ring {
            let Some(b) = r.block(media, &from.layout, seq) else {
                continue;
            };
            // (A mirror that has become the only source may contain later blocks of the previous session that do not belong to the chain.)
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

/// Checks that the end that was found is the true end of the journal. The replay stops where neither primary nor mirror has the next block.
/// If the newest block that was certainly durable on the primary is damaged there, it is unknown which blocks followed it.
fn no_doubt<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    primary: &mut RingReader,
    loaded: &mut Loaded,
    lacked: &[u64],
    proven: u64,
) -> Result<(), OpenError> {
    let (start, end) = (loaded.checkpoint.start.next_seq, loaded.tip.next_seq);
    if from.sources.len() < 2 || primary.carrier != from.layout.primary {
        return Ok(());
    }
    let newest = proven.min(end - 1);
    let area = &from.layout.area;
    let doubtful = if newest >= start {
        lacked.contains(&newest)
    } else {
        // No block since the checkpoint is known to have been durable. But if the ring was in use before, no crash can leave it without any
        // complete block.
        loaded.void = start > 1
            && area.ring_blocks >= RING_MIN
            && !(end..end + u64::from(area.ring_blocks)).any(|seq| {
                primary
                    .block(media, &from.layout, seq)
                    .is_some_and(|b| journal::decode(b, &from.sb.uuid).is_some())
            });
        // The ring may already have been in this state when the session began (`void_at`): at this end, or at this checkpoint. In the second
        // case a mirror that lacks nothing has all that was answered since, and power failed while the primary got its first block.
        let first_blocks = from.sb.void_at == start
            && (from.session.follow == Follow::Exact || broken(media, Mutant::TrustLaggingMirror))
            && !broken(media, Mutant::DoubtFirstBlocks);
        loaded.void && from.sb.void_at != end && !first_blocks
    };
    let doubtful = doubtful && from.session.closed != Some(end);
    if doubtful && !broken(media, Mutant::PassHole) {
        return Err(OpenError::JournalEnd { seq: end });
    }
    Ok(())
}
