//! The verdict about the blocks of an extent, from two looks and what was read in between.

use super::look::{COPY, DIRTY, HOME, Placed};
use super::read::{Bad, Half};

/// Runs of blocks, as start and end.
pub(super) type Runs = Vec<(usize, usize)>;

/// The findings about an extent. They are doubts until another look has confirmed them.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// Blocks that could be read nowhere.
    pub lost: Runs,
    /// Blocks that differ between home and copy.
    pub differing: Runs,
    /// Places that could not be read, whether they hold blocks of the volume or not.
    pub bad: Vec<Bad>,
}

impl Judged {
    /// Whether there is nothing to doubt.
    pub fn is_well(&self) -> bool {
        self.lost.is_empty() && self.differing.is_empty() && self.bad.is_empty()
    }

    /// The blocks that must be read again. `blocks`: those of the extent.
    pub fn span(&self, blocks: &[u8]) -> (usize, usize) {
        if !self.bad.is_empty() {
            return (0, blocks.len());
        }
        let all = || self.lost.iter().chain(&self.differing);
        let from = all().map(|r| r.0).min().unwrap_or(0);
        (from, all().map(|r| r.1).max().unwrap_or(0))
    }
}

/// What was read of an extent: bytes from block `first` on.
pub(super) struct Halves<'a> {
    pub first: usize,
    pub home: Half<'a>,
    pub copy: Option<Half<'a>>,
}

/// Judges the blocks that were read. A block whose state changed between the looks was written meanwhile: nothing is said about it.
pub(super) fn judge(before: &Placed, after: &Placed, read: &Halves<'_>, block: usize) -> Judged {
    let mut judged = Judged::default();
    let halves = [Some(&read.home), read.copy.as_ref()];
    judged.bad = halves.into_iter().flatten().filter_map(Half::bad).collect();
    if read.copy.is_none() && judged.bad.is_empty() && read.home.is_here() {
        return judged;
    }
    let end = read.first + read.home.bytes.len() / block;
    for b in read.first..end.min(before.blocks.len()) {
        let state = before.blocks[b];
        if after.blocks.get(b) != Some(&state) {
            continue;
        }
        let at = b - read.first;
        let has = |half: &Half<'_>| half.has(at, block);
        let at_home = (state & (HOME | DIRTY) == HOME).then(|| has(&read.home));
        let copied = read.copy.as_ref().filter(|_| state & (COPY | DIRTY) != 0);
        let runs = match (at_home, copied.map(has)) {
            (Some(true), Some(true))
                if copied.is_some_and(|c| c.block(at, block) != read.home.block(at, block)) =>
            {
                &mut judged.differing
            }
            (Some(false) | None, Some(false)) | (Some(false), None) => &mut judged.lost,
            _ => continue,
        };
        match runs.last_mut().filter(|r| r.1 == b) {
            Some(last) => last.1 += 1,
            None => runs.push((b, b + 1)),
        }
    }
    judged
}
