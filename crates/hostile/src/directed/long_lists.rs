//! Scenes about lists of lost data on a disk of more than one chunk.

use super::stage::{Shape, Stage, nothing};
use isotherm_core::engine::Mutant;
use isotherm_core::geometry::Kind;
use isotherm_core::policy::Uses;
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::volume::lost::{ListHead, LostPart};
use isotherm_core::{Engine, ExtentId, IoError, MemberId};

/// Number of extents: those from [`SECOND`] on are the second chunk.
const EXTENTS: u32 = 4000;
const SECOND: u32 = 31_744 / 8;
/// An extent of the second chunk.
const FAR: u32 = SECOND + 2;

/// A cache volume with room for `list_pages` pages, whose flash has these blocks when the power fails.
fn dirty(mutant: Option<Mutant>, list_pages: u16, lost: &[LostPart]) -> Result<Stage, String> {
    let shape = Shape {
        kind: Kind::Cache,
        extents: EXTENTS,
        slots: vec![10, EXTENTS],
        list_pages,
        ..Shape::default()
    };
    let mut s = Stage::new(mutant, &shape)?;
    s.uses(Uses::Copies);
    for e in [0, 1, 2, FAR - 1, FAR, FAR + 1] {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    for (e, from, to) in lost {
        s.allocate(e.0)?;
        s.write(e.0, (*from, *to))?;
    }
    s.flush()?;
    s.lose_power(nothing);
    Ok(s)
}

/// Opens the volume once more. What it has lost with a damaged page is lost.
fn again(s: &mut Stage) -> Result<(), String> {
    let loss = Loss::Refused;
    s.try_open(|epoch| Mode::Degraded { epoch, loss }, None)
        .map_err(|e| format!("what is lost was listed, yet: {e}"))?;
    s.forfeit();
    s.verify()
}

fn head(s: &Stage) -> ListHead {
    let space = s.engine.as_ref().map(Engine::space);
    space.map_or(ListHead::default(), |p| p.lost.head(MemberId(1)))
}

/// Checks how much is lost, in a list of granules of this size.
fn has(s: &Stage, blocks: u64, shift: u32) -> Result<(), String> {
    let space = s.engine.as_ref().map(Engine::space);
    let lost = space.map_or(0, |p| p.lost.blocks());
    if (lost, head(s).shift) == (blocks, shift) {
        return Ok(());
    }
    Err(format!("{lost} blocks are lost, by {:?}", head(s)))
}

/// Blocks of two chunks are lost, and a list has one page: two blocks are lost for each, and written together.
pub(super) fn too_long(mutant: Option<Mutant>) -> Result<(), String> {
    let lost = [(ExtentId(1), 1, 2), (ExtentId(FAR), 4, 6)];
    let mut s = dirty(mutant, 1, &lost)?;
    s.list(Some(&lost))?;
    s.verify()?;
    has(&s, 4, 1)?;
    // Half of what is lost together.
    let tag = s.send(1, (0, 1))?;
    let half = s.answer(tag);
    s.verify()?;
    if half != Some(Err(IoError::Io)) {
        return Err(format!("a part of a lost granule was written: {half:?}"));
    }
    s.write(1, (0, 2))?;
    s.flush()?;
    s.lose_power(nothing);
    // What is left fits as it is.
    again(&mut s)?;
    has(&s, 2, 0)?;
    s.write(FAR, (4, 5))?;
    s.flush()?;
    s.lose_power(nothing);
    again(&mut s)?;
    has(&s, 1, 0)
}

/// The same if only the marks tell what is lost: regions of 64 extents.
pub(super) fn too_many_regions(mutant: Option<Mutant>) -> Result<(), String> {
    let lost = [(ExtentId(1), 1, 2), (ExtentId(FAR), 4, 6)];
    let mut s = dirty(mutant, 1, &lost)?;
    s.list(None)?;
    s.verify()?;
    has(&s, (64 + 32) * 8, 1)?;
    s.write(FAR, (4, 6))?;
    s.flush()?;
    s.lose_power(nothing);
    again(&mut s)?;
    has(&s, (64 + 32) * 8 - 2, 1)
}

/// One of two pages cannot be read, or a sector of one: what it had is lost in the listed regions, and the other page counts.
pub(super) fn damaged(mutant: Option<Mutant>) -> Result<(), String> {
    let lost = [(ExtentId(1), 0, 8), (ExtentId(FAR), 2, 6)];
    let mut s = dirty(mutant, 1024, &lost)?;
    s.list(Some(&lost))?;
    has(&s, 12, 0)?;
    s.write(1, (0, 3))?;
    s.flush()?;
    for (page, bytes, left) in [(1, 512, 5 + 32 * 8), (0, 4096, 64 * 8 + 32 * 8)] {
        let at = s.sb.list_offset(MemberId(1), head(&s).place, page);
        s.close(None)?;
        s.disks[1].corrupt(at, bytes);
        again(&mut s)?;
        has(&s, left, 0)?;
    }
    s.write(1, (0, 3))?;
    s.flush()?;
    s.lose_power(nothing);
    again(&mut s)?;
    has(&s, 64 * 8 + 32 * 8 - 3, 0)
}
