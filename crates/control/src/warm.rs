//! Data that a user wants on flash: which extents it is in, and how far its copying is.

use std::ops::Range;

use isotherm_answers::{Warm, WarmEnd as Ended};
use isotherm_core::engine::{WARM_RANGES_MAX, WarmEnd, Warmed};
use isotherm_core::{Engine, World};
use isotherm_live::Handle;
use serde::{Deserialize, Serialize};

use crate::live::Live;

/// What is to be copied to flash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum WarmAsk {
    /// Everything.
    All,
    /// The metadata in use of the file systems on the volume, without journals, as their layout shows it.
    Metadata,
    /// The data of these classes.
    Classes(Vec<u8>),
    /// Ranges of the volume in any order: first byte, bytes.
    Ranges(Vec<(u64, u64)>),
    /// Nothing any more: what was asked for before ends.
    Stop,
}

/// How far the copying is, for `stats`; `None` if nobody has asked since the volume was opened.
pub fn warmed(engine: &Engine) -> Option<Warm> {
    let each = u64::from(engine.space().geo.extent_bytes());
    engine.warmed().map(|w| shown(&w, each))
}

fn shown(w: &Warmed, each: u64) -> Warm {
    let bytes = |extents: u32| u64::from(extents) * each;
    Warm {
        asked_ns: w.asked.0,
        wanted_bytes: bytes(w.wanted),
        copied_bytes: bytes(w.copied),
        there_bytes: bytes(w.there),
        unreadable_bytes: bytes(w.unreadable),
        did_not_fit_bytes: bytes(w.full),
        in_use_bytes: bytes(w.in_use),
        end: w.end.map(|end| match end {
            WarmEnd::Complete => Ended::Complete,
            WarmEnd::Stopped => Ended::Stopped,
            WarmEnd::Policy => Ended::Policy,
            WarmEnd::Flash => Ended::Flash,
            WarmEnd::Closed => Ended::Closed,
        }),
    }
}

/// Collects ranges of bytes as ranges of extents, in order. If there are too many, what lies between near ones is wanted, too.
struct Wanted {
    shift: u32,
    all: Vec<Range<u32>>,
    gap: u32,
}

impl Wanted {
    fn new(shift: u32) -> Wanted {
        Wanted {
            shift,
            all: Vec::new(),
            gap: 0,
        }
    }
    /// Adds a range. Those that come in order need little memory.
    fn add(&mut self, bytes: &Range<u64>) {
        let (from, to) = (bytes.start >> self.shift, (bytes.end - 1) >> self.shift);
        let (from, to) = (from as u32, to as u32 + 1);
        match self.all.last_mut() {
            Some(last) if from >= last.start && from <= last.end.saturating_add(self.gap) => {
                last.end = last.end.max(to);
            }
            _ => self.all.push(from..to),
        }
        if self.all.len() > 4 * WARM_RANGES_MAX {
            self.join();
        }
    }
    /// Puts them in order, and joins neighbours until there are few enough.
    fn join(&mut self) {
        self.all.sort_unstable_by_key(|r| r.start);
        loop {
            let mut few: Vec<Range<u32>> = Vec::new();
            for r in self.all.drain(..) {
                match few.last_mut() {
                    Some(last) if r.start <= last.end.saturating_add(self.gap) => {
                        last.end = last.end.max(r.end);
                    }
                    _ => few.push(r),
                }
            }
            self.all = few;
            if self.all.len() <= WARM_RANGES_MAX {
                return;
            }
            self.gap = (self.gap * 2).max(1);
        }
    }
}

/// The extents of what is asked for.
fn extents(handle: &Handle, what: &WarmAsk, volume: u64) -> Result<Vec<Range<u32>>, String> {
    let mut wanted = Wanted::new(handle.extent_shift());
    match what {
        WarmAsk::All => wanted.add(&(0..volume)),
        WarmAsk::Stop => {}
        WarmAsk::Metadata => {
            let found = handle
                .classes()
                .metadata(handle, |bytes| wanted.add(&bytes));
            found.map_err(|_| "the volume is closing".to_owned())?;
            if wanted.all.is_empty() {
                return Err(no_metadata(handle));
            }
        }
        WarmAsk::Classes(classes) => {
            let is_one = |class| classes.contains(&class);
            handle
                .classes()
                .ranges_of(is_one, |bytes| wanted.add(&bytes));
            if wanted.all.is_empty() {
                return Err(
                    "no data of these classes is known: `isotherm classes show` lists what there is"
                        .to_owned(),
                );
            }
        }
        WarmAsk::Ranges(ranges) => {
            for &(from, n) in ranges.iter().filter(|r| r.1 > 0) {
                let end = from.checked_add(n).filter(|end| *end <= volume);
                let end = end.ok_or_else(|| {
                    format!("{n} bytes from {from} lie beyond the volume, which has {volume} bytes")
                })?;
                wanted.add(&(from..end));
            }
            if wanted.all.is_empty() {
                return Err("nothing of that has data on the volume".to_owned());
            }
        }
    }
    wanted.join();
    Ok(wanted.all)
}

fn no_metadata(handle: &Handle) -> String {
    let why = handle.classes().file_systems().1;
    let why = why.map_or_else(String::new, |w| format!(" ({w})"));
    format!(
        "no metadata is known: there is no ext2, ext3, ext4 or XFS on the volume that can be read{why}, or its layout is not looked at (`isotherm classes set VOLUME layout=on`)"
    )
}

impl Live {
    /// Begins to copy data to flash, or ends that. `stats` tells how far it is; `asked_ns` of the answer names it there.
    pub(crate) fn warm(&self, what: &WarmAsk) -> Result<Option<Warm>, String> {
        self.refuse_if_closing()?;
        let volume = self.on_engine(|e, _| e.space().geo.volume_bytes())?;
        let ranges = extents(&self.handle, what, volume)?;
        let begun = self.on_engine(move |engine, world| {
            let asked = engine.warm(world.now(), ranges);
            let done = asked.map(|()| warmed(engine));
            done.map_err(|e| e.to_string())
        })?;
        begun.map_err(|e| e.replace("VOLUME", &self.volume.display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bytes_become_few_ranges_of_extents() {
        let mut wanted = Wanted::new(16);
        for (from, to) in [
            (70_000, 70_001),
            (0, 1),
            (65_536, 131_073),
            (900_000, 900_001),
        ] {
            wanted.add(&(from..to));
        }
        wanted.join();
        assert_eq!(wanted.all, [0..3, 13..14]);
        // Every second extent, far too many: near ones are joined, and nothing is left out.
        let mut wanted = Wanted::new(12);
        let all = WARM_RANGES_MAX as u64 * 10;
        for e in (0..all).rev() {
            wanted.add(&(e << 13..(e << 13) + 1));
        }
        wanted.join();
        assert!(wanted.all.len() <= WARM_RANGES_MAX);
        let covered = |e: u32| wanted.all.iter().any(|r| r.contains(&e));
        assert!([0, 2, 7000, all as u32 * 2 - 2].into_iter().all(covered));
    }
}
