//! Reads slots from the members. What cannot be read in one piece is read in small parts.

use super::State;
use super::look::{Look, Spot};
#[cfg(test)]
use super::tests::Phase;
use super::verdict::Halves;
use crate::buffers::{ALIGNMENT, Buffer};
use isotherm_core::MemberId;
use rustix::io::Errno;
use std::io;
use std::time::Instant;

/// Size of a read after a larger one has failed, in bytes.
pub(super) const SMALL: usize = 4096;
/// Largest read in bytes.
const READ_MAX: usize = 1 << 20;

/// Places of a slot that could not be read.
#[derive(Clone, Debug)]
pub(super) struct Bad {
    pub member: MemberId,
    /// Byte offset of the first one on the member.
    pub first: u64,
    /// Their number, each of [`SMALL`] bytes.
    pub places: usize,
    /// The system's error of the last one.
    pub error: String,
}

/// The outcome of the read of a part of a slot.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    spot: Spot,
    /// Whether the member is present.
    here: bool,
    /// For each part of [`SMALL`] bytes, whether it cannot be read; empty if all can.
    bad: Vec<bool>,
    error: String,
}

/// A part of a slot that was read.
pub(super) struct Half<'a> {
    pub bytes: &'a [u8],
    outcome: &'a Outcome,
    /// Byte of the slot at which `bytes` begins.
    skip: u64,
}

impl Half<'_> {
    /// Whether the member is present.
    pub fn is_here(&self) -> bool {
        self.outcome.here
    }

    /// The bytes of block `b` of this part.
    pub fn block(&self, b: usize, size: usize) -> &[u8] {
        &self.bytes[b * size..][..size]
    }

    /// Whether block `b` of this part could be read.
    pub fn has(&self, b: usize, size: usize) -> bool {
        let (at, bad) = (b * size, &self.outcome.bad);
        let parts = at / SMALL..(at + size).div_ceil(SMALL);
        self.outcome.here
            && !parts
                .into_iter()
                .any(|i| bad.get(i).copied().unwrap_or(false))
    }

    /// The places that could not be read, if there are any. An absent member has none.
    pub fn bad(&self) -> Option<Bad> {
        let first = self.outcome.bad.iter().position(|b| *b)?;
        Some(Bad {
            member: self.outcome.spot.member,
            first: self.outcome.spot.at + self.skip + (first * SMALL) as u64,
            places: self.outcome.bad.iter().filter(|b| **b).count(),
            error: self.outcome.error.clone(),
        })
    }
}

/// The outcomes for an extent of a batch.
pub(super) struct Read {
    home: Outcome,
    copy: Option<Outcome>,
    /// First block, and number of bytes.
    part: (usize, usize),
    block: usize,
}

/// The memory of a scrub: room for a batch of homes and for the copies of their extents.
pub(super) struct Reader {
    homes: Buffer,
    copies: Buffer,
}

impl Reader {
    pub fn new(bytes: usize) -> Reader {
        let buffer = || Buffer::new(0, bytes as u32, ALIGNMENT as u32);
        Reader {
            homes: buffer(),
            copies: buffer(),
        }
    }

    /// Reads the homes and copies of the extents of a look that are `wanted`. Neighbouring homes are read in one piece.
    pub fn batch(&mut self, look: &Look, wanted: &[bool], state: &State) -> Vec<Option<Read>> {
        let n = look.placed.len();
        let mut reads: Vec<Option<Read>> = Vec::new();
        reads.resize_with(n, || None);
        let mut i = 0;
        while i < n {
            let Some(first) = look.placed[i].home.filter(|_| wanted[i]) else {
                i += 1;
                continue;
            };
            let size = look.placed[i].blocks.len() * look.block;
            let follows = |j: usize| {
                let home = look.placed[j].home.filter(|_| wanted[j]);
                home.is_some_and(|h| {
                    h.member == first.member && h.at == first.at + ((j - i) * size) as u64
                })
            };
            let end = (i + 1..n).find(|&j| !follows(j)).unwrap_or(n);
            let homes = &mut self.homes[i * size..end * size];
            let whole = read(look, first, first.at, homes, state).is_ok();
            for (j, outcome) in reads.iter_mut().enumerate().take(end).skip(i) {
                let placed = &look.placed[j];
                let range = j * size..(j + 1) * size;
                let home = placed.home.map(|spot| {
                    if whole {
                        Outcome::good(spot)
                    } else {
                        part(look, spot, 0, &mut self.homes[range.clone()], state)
                    }
                });
                #[cfg(test)]
                state.between.call(Phase::HomeRead, placed.home);
                let copy = placed
                    .copy
                    .map(|spot| part(look, spot, 0, &mut self.copies[range], state));
                #[cfg(test)]
                state.between.call(Phase::CopyRead, placed.home);
                *outcome = home.map(|home| Read {
                    home,
                    copy,
                    part: (0, size),
                    block: look.block,
                });
            }
            i = end;
        }
        reads
    }

    /// Reads blocks `from..to` of the only extent of a look, at its home and from its copy.
    pub fn one(&mut self, look: &Look, (from, to): (usize, usize), state: &State) -> Option<Read> {
        let placed = look.placed.first()?;
        // Whole parts, so that an unreadable one is told from its neighbours by its place on the device.
        let unit = (SMALL / look.block).max(1);
        let end = placed.blocks.len();
        let (from, to) = (from / unit * unit, to.next_multiple_of(unit).min(end));
        let (skip, bytes) = (from * look.block, (to - from) * look.block);
        let home = placed.home?;
        let home = part(look, home, skip as u64, &mut self.homes[..bytes], state);
        #[cfg(test)]
        state.between.call(Phase::HomeRead, placed.home);
        let copy = placed
            .copy
            .map(|spot| part(look, spot, skip as u64, &mut self.copies[..bytes], state));
        #[cfg(test)]
        state.between.call(Phase::CopyRead, placed.home);
        Some(Read {
            home,
            copy,
            part: (from, bytes),
            block: look.block,
        })
    }

    /// What was read of extent number `i` of the batch.
    pub fn halves<'a>(&'a self, i: usize, read: &'a Read) -> Halves<'a> {
        let (first, bytes) = read.part;
        let range = i * bytes..(i + 1) * bytes;
        let skip = (first * read.block) as u64;
        let half = |bytes, outcome| Half {
            bytes,
            outcome,
            skip,
        };
        Halves {
            first,
            home: half(&self.homes[range.clone()], &read.home),
            copy: (read.copy.as_ref()).map(|outcome| half(&self.copies[range], outcome)),
        }
    }
}

impl Outcome {
    fn good(spot: Spot) -> Outcome {
        Outcome {
            spot,
            here: true,
            bad: Vec::new(),
            error: String::new(),
        }
    }
}

/// Reads a part of a slot from byte `skip` of it on; if that fails, in small parts.
fn part(look: &Look, spot: Spot, skip: u64, buf: &mut [u8], state: &State) -> Outcome {
    let mut outcome = Outcome::good(spot);
    let from = spot.at + skip;
    match read(look, spot, from, buf, state) {
        Ok(()) => return outcome,
        Err(e) if Errno::from_io_error(&e) == Some(Errno::NODEV) => {
            outcome.here = false;
            return outcome;
        }
        Err(_) => {}
    }
    for (at, small) in (from..).step_by(SMALL).zip(buf.chunks_mut(SMALL)) {
        // A read that fails may take many seconds. What is not read any more is not judged.
        if state.is_stopped() {
            outcome.bad.clear();
            return outcome;
        }
        let done = read(look, spot, at, small, state);
        outcome.bad.push(done.is_err());
        if let Err(e) = done {
            outcome.error = e.to_string();
        }
    }
    if !outcome.bad.contains(&true) {
        outcome.bad.clear();
    }
    outcome
}

/// Reads from a member. The error of an absent one is `ENODEV`.
fn read(look: &Look, spot: Spot, from: u64, buf: &mut [u8], state: &State) -> io::Result<()> {
    let member = usize::from(spot.member.0);
    let Some(Some(device)) = look.devices.get(member) else {
        return Err(Errno::NODEV.into());
    };
    let mut at = from;
    for chunk in buf.chunks_mut(READ_MAX) {
        state.locked().reading = Some((member, at, Instant::now()));
        let done = device.read_exact_at(chunk, at);
        let mut progress = state.locked();
        progress.reading = None;
        done?;
        progress.read += chunk.len() as u64;
        at += chunk.len() as u64;
    }
    Ok(())
}
