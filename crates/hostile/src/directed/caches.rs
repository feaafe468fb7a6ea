//! Scenes about cache volumes, whose homes have fixed places.

use super::stage::{Shape, Stage, everything, nothing};
use isotherm_core::TierId;
use isotherm_core::engine::Mutant;
use isotherm_core::geometry::Kind;
use isotherm_core::policy::{Action, Uses, WriteTo};

fn cache(mutant: Option<Mutant>) -> Result<Stage, String> {
    let shape = Shape {
        kind: Kind::Cache,
        slots: vec![10, 24],
        ..Shape::default()
    };
    let s = Stage::new(mutant, &shape)?;
    s.uses(Uses::Copies);
    Ok(s)
}

/// Some dirty blocks of a copy are discarded, and then written to copy and home, durably at the home. After a power failure the record must not
/// say that the copy has newer data.
pub(super) fn written_past_discarded(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    s.allocate(1)?;
    s.write(1, (0, 8))?;
    s.flush()?;
    s.discard(1, (0, 2))?;
    s.write_to(WriteTo::Both);
    s.write_forced(1, (0, 2))?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// The policy wants to move a home to flash: that is refused, and the home stays where its address says.
pub(super) fn a_home_stays(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    s.write(1, (0, 8))?;
    let (extent, to) = (isotherm_core::ExtentId(1), TierId(0));
    s.propose(Action::Move { extent, to })?;
    s.flush()?;
    s.lose_power(everything);
    s.open()?;
    s.verify()
}
