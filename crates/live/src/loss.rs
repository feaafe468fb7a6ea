//! The data that a volume has lost with a missing cache.

use crate::volume::Volume;
use isotherm_core::policy::Uses;
use isotherm_core::store::Opened;
use isotherm_core::volume::Space;
use isotherm_core::{MemberId, Slot};

/// Byte ranges of the volume, as start and end.
pub type Ranges = Vec<(u64, u64)>;

/// Number of ranges that are shown; a longer list is cut.
const SHOWN: usize = 20;

/// The data that is lost with missing members, or is served in an older version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Byte ranges whose newest data was in a missing cache.
    pub ranges: Ranges,
    /// Whether there may be more ranges, of which the present members have no record.
    pub unsure: bool,
    /// Whether the volume can go on and answer reads of these ranges with errors.
    pub can_be_listed: bool,
}

impl Lost {
    /// Whether nothing is lost.
    pub fn is_nothing(&self) -> bool {
        self.ranges.is_empty() && !self.unsure
    }

    /// The losses of a volume that was opened without writing.
    pub(crate) fn of(o: &Opened, uses: Uses) -> Lost {
        let map = &o.space.map;
        let (geo, missing) = (&o.space.geo, &o.report.missing);
        let mut ranges = Ranges::new();
        let fast = geo.tier_slots(geo.slowest()).start;
        let gone = missing.iter().any(|m| {
            let m = &geo.members[usize::from(m.0)];
            m.tier != geo.slowest()
        });
        if !gone {
            return Lost::default();
        }
        let is_there = |m: &MemberId| !missing.contains(m);
        let mut there = (0..geo.members.len() as u8).map(MemberId).filter(is_there);
        let no_flash = there.all(|m| geo.members[usize::from(m.0)].tier == geo.slowest());
        let bytes = |e: u32| u64::from(e) << geo.extent_shift;
        ranges.extend(
            o.report
                .suspects
                .iter()
                .map(|r| (bytes(r.start), bytes(r.end))),
        );
        let (blocks, shift) = (geo.blocks_per_extent(), geo.block_shift);
        let mut extents: Vec<_> = (0..fast)
            .map(Slot)
            .filter(|&s| missing.contains(&geo.locate(s).0))
            .filter_map(|s| map.owner(s).filter(|&e| map.copy(e) == Some(s)))
            .collect();
        extents.sort_unstable();
        for e in extents {
            let base = u64::from(e.0) << geo.extent_shift;
            let mut b = 0;
            while b < blocks {
                let (n, dirty) = map.dirty_run(e, b, blocks);
                let (from, to) = (u64::from(b) << shift, u64::from(b + n) << shift);
                match ranges.last_mut().filter(|r| r.1 == base + from) {
                    Some(last) if dirty => last.1 = base + to,
                    _ if dirty => ranges.push((base + from, base + to)),
                    _ => {}
                }
                b += n;
            }
        }
        Lost {
            ranges,
            unsure: o.report.unsure && (uses != Uses::Homes || map.copied() > 0),
            can_be_listed: geo.is_cache() && !o.report.unsure && no_flash,
        }
    }

    /// A description, with one line for each range.
    pub fn words(&self) -> String {
        let bytes: u64 = self.ranges.iter().map(|(a, z)| z - a).sum();
        let mut words = vec![format!(
            "a missing member held the newest data of {bytes} bytes in {} ranges, or of a part of them",
            self.ranges.len()
        )];
        for (a, z) in self.ranges.iter().take(SHOWN) {
            words.push(format!("  bytes {a} to {z}"));
        }
        if self.ranges.len() > SHOWN {
            words.push(format!("  and {} more", self.ranges.len() - SHOWN));
        }
        if self.unsure {
            words.push(
                "  and, since the volume was not closed, perhaps of others: what was written to the missing member last is not known"
                    .into(),
            );
        }
        words.join("\n")
    }
}

/// Pieces of this size need no mention.
const SMALLEST: u64 = 4096;

/// What was lost with flash and is listed: reading it is an error until it is written again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Number of bytes.
    pub bytes: u64,
    /// Number of bytes that one request must write, or more, before they can be read again.
    pub granule: u64,
    /// The first byte ranges.
    pub ranges: Ranges,
}

impl Listed {
    /// What to do about it.
    pub const TODO: &str = "restore the files there from a backup: what is written or discarded there can be read again (docs/serving.md names the files); or stop the volume and serve it with --accept-loss, to have the older data that the disks hold";

    /// What a volume lists.
    pub fn of(space: &Space) -> Listed {
        let shift = space.geo.block_shift;
        Listed {
            bytes: space.lost.blocks() << shift,
            granule: space.lost.granule() << shift,
            ranges: space.lost.ranges(shift, SHOWN),
        }
    }

    /// The ranges, in one line.
    pub fn words(&self) -> String {
        let ranges = self.ranges.iter().map(|(a, z)| format!("{a} to {z}"));
        let mut words = format!("bytes {}", ranges.collect::<Vec<_>>().join(", "));
        if self.granule > SMALLEST {
            words = format!(
                "{words}, in pieces of {} bytes, each to be written by one request",
                self.granule
            );
        }
        let shown: u64 = self.ranges.iter().map(|(a, z)| z - a).sum();
        if shown < self.bytes {
            return format!("{words}, and {} bytes more", self.bytes - shown);
        }
        words
    }

    /// A message about it, unless there is nothing.
    pub(crate) fn note(&self) -> Option<String> {
        let note = format!(
            "{} bytes were lost with flash, and reading them is an error until they are written again ({}): {}",
            self.bytes,
            self.words(),
            Listed::TODO
        );
        (self.bytes > 0).then_some(note)
    }
}

impl Volume {
    /// What was lost with flash and is listed.
    pub fn listed(&self) -> Listed {
        Listed::of(&self.opened.space)
    }

    /// The data that is lost with missing members, or is served in an older version.
    pub fn lost_writes(&self) -> &Lost {
        &self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_name_pieces_that_one_request_must_write() {
        let mut listed = Listed {
            bytes: 8192,
            granule: 4096,
            ranges: vec![(0, 4096)],
        };
        assert_eq!(listed.words(), "bytes 0 to 4096, and 4096 bytes more");
        listed.granule = 8192;
        listed.ranges = vec![(0, 8192)];
        assert_eq!(
            listed.words(),
            "bytes 0 to 8192, in pieces of 8192 bytes, each to be written by one request"
        );
    }
}
