//! `isotherm web`: shows all volumes of the machine in a browser.

use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Failure;
use crate::args::MachineWebArgs;
use crate::view::{Machine, View, start};

/// Runs until SIGINT, SIGTERM or SIGHUP.
///
/// # Errors
/// The address is in use or not permitted.
pub fn run(args: &MachineWebArgs) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::failed(format!("cannot watch for signals: {e}"));
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let server = start(Some(&args.listen), &args.web, Arc::new(View::new(Machine)))?;
    crate::notify::tell("READY=1");
    signals.forever().next();
    crate::notify::tell("STOPPING=1");
    drop(server);
    Ok(())
}
