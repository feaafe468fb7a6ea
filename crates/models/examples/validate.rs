//! Prints the published figures of each preset beside the modelled ones.
//!
//! `cargo run --release -p isotherm-models --example validate`

use isotherm_models::measure::validate;
use isotherm_models::{SheetError, presets};

fn main() -> Result<(), SheetError> {
    println!(
        "{:<22}{:<22}{:>6}{:>12}{:>12}{:>8}  source",
        "device", "figure", "depth", "published", "modelled", "error"
    );
    for sheet in presets()? {
        for c in validate(&sheet)? {
            let (p, what) = (&c.published, format!("{:?}", c.published.what));
            let error = format!("{:+.1}%", c.error() * 100.0);
            println!(
                "{:<22}{what:<22}{:>6}{:>12.1}{:>12.1}{error:>8}  {}",
                c.device, p.depth, p.value, c.modelled, p.source
            );
        }
    }
    Ok(())
}
