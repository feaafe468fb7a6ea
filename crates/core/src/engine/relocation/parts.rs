//! The blocks that a move concerns: all blocks of its extent, or those that a copy lacks or has, without the blocks that were written since
//! the move read them.

use super::Relocation;
use crate::bits::Bits;
use crate::engine::globals::Globals;
use crate::units::ExtentId;
use crate::volume::Space;

/// Kinds of blocks of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocks {
    /// Valid at the home.
    Valid,
    /// Valid at the home, and not in the copy.
    Lacking,
    /// Valid in the copy.
    Copied,
    /// Dirty in the copy.
    Dirty,
}

impl Blocks {
    /// The run of equal blocks that begins at block `b` and ends at `end` at the latest: its length, and whether its blocks are of this
    /// kind.
    fn run(self, space: &Space, e: ExtentId, b: u32, end: u32) -> (u32, bool) {
        match self {
            Blocks::Valid => space.map.run(e, b, end),
            Blocks::Lacking => match space.map.copy_run(e, b, end) {
                (n, true) => (n, false),
                (n, false) => space.map.run(e, b, b + n),
            },
            Blocks::Copied => space.map.copy_run(e, b, end),
            Blocks::Dirty => space.map.dirty_run(e, b, end),
        }
    }
    /// The first run of blocks of this kind in `from..end`.
    pub(super) fn next(
        self,
        space: &Space,
        e: ExtentId,
        (from, end): (u32, u32),
    ) -> Option<(u32, u32)> {
        let mut b = from;
        while b < end {
            let (n, on) = self.run(space, e, b, end);
            if on {
                return Some((b, b + n));
            }
            b += n;
        }
        None
    }
    /// Whether there is a block of this kind in `within`.
    pub(super) fn any(self, space: &Space, e: ExtentId, within: (u32, u32)) -> bool {
        self.next(space, e, within).is_some()
    }
}

impl Relocation {
    /// Sets the blocks of the move that starts next: the blocks of kind `blocks` of `e` in `from..end`.
    pub(super) fn set_parts(
        &mut self,
        g: &Globals,
        blocks: Blocks,
        e: ExtentId,
        (from, end): (u32, u32),
    ) {
        let (index, all) = (self.next_move(), g.space.geo.blocks_per_extent() as usize);
        let parts = &mut self.moves.parts[usize::from(index)];
        if parts.bytes() == 0 {
            *parts = Bits::new(all);
        }
        parts.fill(0, all, false);
        let mut at = from;
        while let Some((a, z)) = blocks.next(&g.space, e, (at, end)) {
            parts.fill(a as usize, z as usize, true);
            at = z;
        }
    }

    /// The first run, at or after block `from`, of the blocks that move `index` concerns.
    pub(super) fn next_part(&self, g: &Globals, index: u16, from: u32) -> Option<(u32, u32)> {
        (self.moves).part(index, from, g.space.geo.blocks_per_extent())
    }

    /// The range from the first to the last block that move `index` concerns. It is read in one operation; other blocks in it are read but
    /// not used.
    pub(super) fn span_of_parts(&self, g: &Globals, index: u16) -> (u32, u32) {
        let Some((first, mut end)) = self.next_part(g, index, 0) else {
            return (0, g.space.geo.blocks_per_extent());
        };
        while let Some((_, z)) = self.next_part(g, index, end) {
            end = z;
        }
        (first, end)
    }
}
