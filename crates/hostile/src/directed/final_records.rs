//! Scenes about sessions that end without a checkpoint.

use super::stage::{Shape, Stage, nothing};
use isotherm_core::engine::Mutant;
use isotherm_core::geometry::Kind;
use isotherm_core::policy::WriteTo;
use isotherm_core::{Engine, ExtentId};

fn number(s: &Stage) -> u64 {
    s.engine.as_ref().map_or(0, |e| e.progress().2)
}

/// Number of valid blocks in the copy of `e`, and the number of dirty ones.
fn copied(s: &Stage, e: u32) -> (u32, u32) {
    let blocks = |e: &Engine, x| {
        let map = &e.space().map;
        (map.copied_blocks(x), map.dirty_blocks(x))
    };
    s.engine
        .as_ref()
        .map_or((0, 0), |engine| blocks(engine, ExtentId(e)))
}

/// The contents of copies, clean or dirty, must be there after the end of the session. In the next session a write goes to the home of an
/// extent with a clean copy, which no record states; then the power fails. The old contents of that copy must not be used any more.
pub(super) fn keeps_the_cache(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = Stage::with(mutant, &Shape::default(), |p| p.end_with_checkpoint = false)?;
    for e in 1..4 {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    s.write_to(WriteTo::Copy);
    for e in [1, 2] {
        s.allocate(e)?;
        s.write(e, (0, 4))?;
    }
    s.clean(1)?;
    s.flush()?;
    if (copied(&s, 1), copied(&s, 2)) != ((4, 0), (4, 4)) {
        return Err(String::from("the scene has no clean and no dirty copy"));
    }
    let before = number(&s);
    s.close(None)?;
    s.open()?;
    if number(&s) != before {
        return Err(String::from("the scene ends with a checkpoint"));
    }
    if (copied(&s, 1), copied(&s, 2)) != ((4, 0), (4, 4)) {
        return Err(String::from("the contents of the cache have changed"));
    }
    s.verify()?;
    s.write_to(WriteTo::Home);
    s.write(1, (0, 8))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    if copied(&s, 1) != (0, 0) {
        return Err(String::from(
            "the clean blocks of a copy count after a crash",
        ));
    }
    s.verify()
}

/// The records of all copies do not fit into half of the ring, so the session must end with a checkpoint.
pub(super) fn too_many_records(mutant: Option<Mutant>) -> Result<(), String> {
    const COPIES: u32 = 700;
    let shape = Shape {
        kind: Kind::Tiering,
        extents: COPIES,
        slots: vec![COPIES, COPIES],
        ring: 16,
        ..Shape::default()
    };
    let mut s = Stage::with(mutant, &shape, |p| p.end_with_checkpoint = false)?;
    for e in 0..COPIES {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    s.write_to(WriteTo::Copy);
    for e in 0..COPIES {
        s.allocate(e)?;
        s.write(e, (0, 3))?;
    }
    s.flush()?;
    let before = number(&s);
    s.close(None)?;
    s.open()?;
    if number(&s) == before {
        return Err(String::from("the scene ends without a checkpoint"));
    }
    if copied(&s, COPIES - 1) != (3, 3) {
        return Err(String::from("the contents of the cache have changed"));
    }
    s.verify()
}
