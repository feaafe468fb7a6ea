//! What cannot be read from a member that is being copied, and which other member has the same bytes.
//!
//! | block of the slot | the successor gets |
//! |---|---|
//! | was never written, or was written since to the copy on flash alone (it is dirty there) | anything: nobody reads it here |
//! | is in a clean copy on another member, or, if the slot itself is a clean copy, at the home | those bytes |
//! | anything else | nothing: the replacement is refused |

use super::transfer::{Places, SMALL, Transfer, lost as lost_error};
use crate::device::Device;
use crate::error::Error;
use isotherm_core::store;
use isotherm_core::volume::Space;
use isotherm_core::{ExtentId, MemberId, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

/// Most ranges that a message names.
const NAMED: usize = 4;

/// Numbers of parts of [`SMALL`] bytes in a slot, by the index of the slot.
pub(crate) type Parts = BTreeMap<u32, BTreeSet<u32>>;

/// Parts that cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    parts: Parts,
    error: String,
}

impl Unreadable {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// A part cannot be read.
    pub fn note(&mut self, index: u32, part: u32, e: &io::Error) {
        self.parts.entry(index).or_default().insert(part);
        self.error = e.to_string();
    }

    /// A slot is read again.
    pub fn forget(&mut self, index: u32) {
        self.parts.remove(&index);
    }

    /// The system's error of the last part.
    pub fn error(&self) -> &str {
        &self.error
    }

    /// The parts, for another thread.
    pub fn parts(&self) -> Parts {
        self.parts.clone()
    }
}

/// Where the bytes of a part are as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    /// Nobody needs them.
    Unneeded,
    /// At this byte of this member.
    At(MemberId, u64),
    /// Nowhere.
    Nowhere,
}

/// Where part number `part` of `slot`, which belongs to `e`, is as well.
fn other(space: &Space, slot: Slot, e: ExtentId, part: u32) -> Other {
    let (map, geo) = (&space.map, &space.geo);
    let n = geo.blocks_per_extent();
    let in_part = (SMALL as u32 >> geo.block_shift).max(1);
    let has_copy = map.copy(e).is_some();
    let is_copy = map.copy(e) == Some(slot);
    let mut needed = false;
    for b in part * in_part..((part + 1) * in_part).min(n) {
        let home = map.run(e, b, n).1;
        let copy = has_copy && map.copy_run(e, b, n).1;
        let dirty = copy && map.dirty_run(e, b, n).1;
        let (needs, there) = if is_copy {
            (copy, home && !dirty)
        } else {
            (home && !dirty, copy)
        };
        if needs && !there {
            return Other::Nowhere;
        }
        needed |= needs;
    }
    let twin = if is_copy { map.home(e) } else { map.copy(e) };
    match twin.filter(|_| needed) {
        Some(twin) => {
            let (member, at) = geo.locate(twin);
            Other::At(member, at + u64::from(part) * SMALL as u64)
        }
        None => Other::Unneeded,
    }
}

/// The byte ranges of the old device that cannot be read, are needed, and are nowhere else, each with its slot.
pub(crate) fn nowhere_else(
    space: &Space,
    places: &Places,
    unreadable: &Parts,
    extents: Range<u32>,
) -> Vec<(u32, (u64, u64))> {
    let mut lost = Vec::new();
    each(space, places, unreadable, extents, |index, part, other| {
        if other == Other::Nowhere {
            lost.push((index, range(places, index, part)));
        }
    });
    lost
}

fn range(places: &Places, index: u32, part: u32) -> (u64, u64) {
    let at = places.both(index).0 + u64::from(part) * SMALL as u64;
    (at, at + (SMALL.min(places.extent())) as u64)
}

/// Calls `f` with each unreadable part of a slot that is in use for one of `extents`.
fn each(
    space: &Space,
    places: &Places,
    unreadable: &Parts,
    extents: Range<u32>,
    mut f: impl FnMut(u32, u32, Other),
) {
    let place = MemberId(places.place as u8);
    let first = space.geo.members[places.place].first_slot;
    for (e, index) in store::slots_of(space, place, extents) {
        for &part in unreadable.get(&index).into_iter().flatten() {
            f(index, part, other(space, Slot(first + index), e, part));
        }
    }
}

impl Transfer<'_> {
    /// Gives the new device what cannot be read from the old one, from other members. No engine uses the volume.
    ///
    /// # Errors
    /// No other member has it, or a device fails.
    pub fn fill(&mut self, space: &Space, devices: &[Option<Device>]) -> Result<(), Error> {
        if self.unreadable.is_empty() {
            return Ok(());
        }
        let parts = self.unreadable.parts();
        let (mut lost, mut from) = (Vec::new(), Vec::new());
        let all = 0..space.geo.extents;
        each(
            space,
            self.places,
            &parts,
            all,
            |index, part, other| match other {
                Other::Unneeded => {}
                Other::At(member, at) => from.push((index, part, member, at)),
                Other::Nowhere => lost.push(range(self.places, index, part)),
            },
        );
        for (index, part, member, at) in from {
            let range = range(self.places, index, part);
            let buf = self.part((range.1 - range.0) as usize);
            let device = devices[usize::from(member.0)].as_ref();
            if device.is_none_or(|d| d.read_exact_at(buf, at).is_err()) {
                lost.push(range);
                continue;
            }
            let to = self.places.both(index).1 + u64::from(part) * SMALL as u64;
            let len = (range.1 - range.0) as usize;
            self.put(to, len)?;
        }
        if lost.is_empty() {
            return Ok(());
        }
        Err(lost_error(self.source, &lost, self.unreadable.error()))
    }
}

/// Ranges in words, neighbours joined.
pub(super) fn words(ranges: &[(u64, u64)]) -> String {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    sorted.dedup_by(|next, last| {
        let touches = next.0 <= last.1;
        last.1 = if touches { last.1.max(next.1) } else { last.1 };
        touches
    });
    let named = sorted.iter().take(NAMED);
    let mut words: Vec<String> = named
        .map(|(from, to)| format!("bytes {from} to {}", to - 1))
        .collect();
    if sorted.len() > NAMED {
        words.push(format!("{} more ranges", sorted.len() - NAMED));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_counted() {
        assert_eq!(words(&[(8192, 12288), (4096, 8192)]), "bytes 4096 to 12287");
        let many: Vec<(u64, u64)> = (0..6).map(|i| (i * 10_000, i * 10_000 + 4096)).collect();
        let said = words(&many);
        assert!(said.starts_with("bytes 0 to 4095, bytes 10000 to 14095"));
        assert!(said.ends_with("2 more ranges"), "{said}");
    }
}
