//! `isotherm demo`: the main job in one go.

use crate::Failure;
use crate::args::DemoArgs;

/// Not in this build.
///
/// # Errors
/// Always, with what to run instead.
pub fn run(_args: &DemoArgs) -> Result<(), Failure> {
    Err(Failure::failed(
        "the demo is not in this build; the same steps by hand: isotherm create, serve, stats, why, stop (see their --help)",
    ))
}
