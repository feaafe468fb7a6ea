//! `isotherm files disk`: the disks of a mount, one that is emptied, and disks that are made equally full.

use std::path::Path;
use std::time::Duration;

use isotherm_answers::files::{DiskState, Disks, Drain};

use super::files_client::{ask, order};
use crate::Failure;
use crate::args::{BalanceArgs, DiskCommand, DrainArgs};
use crate::json::JsonArg;

/// Interval between two looks at the progress.
const LOOK: Duration = Duration::from_millis(200);

/// # Errors
/// There is no mount of this program, it refuses, or files could not be moved.
pub(super) fn run(command: &DiskCommand) -> Result<(), Failure> {
    match command {
        DiskCommand::List(a) => print(&a.json, &ask(&a.path, "disks")?),
        DiskCommand::Drain(a) => drain(a),
        DiskCommand::Balance(a) => balance(a),
    }
}

fn print(json: &JsonArg, disks: &Disks) -> Result<(), Failure> {
    let answer = isotherm_answers::json(disks);
    json.print(&answer, || crate::answers::files::disks(disks))
}

/// Shows the progress until `ended` says so of the disks, or of those that cannot end.
fn wait<T>(path: &Path, ended: impl Fn(&Disks) -> Option<T>) -> Result<(Disks, T), Failure> {
    let bar = crate::progress::Progress::files();
    loop {
        let disks: Disks = ask(path, "disks")?;
        if let Some(m) = &disks.moving {
            bar.file(&m.path, m.copied_bytes, m.bytes);
        }
        if let Some(end) = ended(&disks) {
            bar.finish();
            return Ok((disks, end));
        }
        std::thread::sleep(LOOK);
    }
}

fn drain(args: &DrainArgs) -> Result<(), Failure> {
    // The server has another working directory.
    let real = Path::new(&args.disk).canonicalize().ok();
    let is_number = args.disk.parse::<u8>().is_ok();
    let name = real.filter(|_| !is_number);
    let name = name.map_or_else(|| args.disk.clone(), |p| p.display().to_string());
    if args.cancel {
        order(&args.path, "undrain", &name)?;
        return print(&args.json, &ask(&args.path, "disks")?);
    }
    order(&args.path, "drain", &name)?;
    if args.no_wait {
        return print(&args.json, &ask(&args.path, "disks")?);
    }
    let is_it = |d: &&DiskState| d.figures.path == name || d.disk.to_string() == name;
    let (disks, stays) = wait(&args.path, |disks| {
        let disk = disks.disks.iter().find(is_it)?;
        match (disk.drain, disk.left, disk.cannot_move) {
            (Drain::Draining, Some(left @ 1..), Some(cannot)) if left == cannot => Some(left),
            (Drain::Draining, ..) => None,
            // Somebody has cancelled it.
            (Drain::None, ..) => Some(disk.left.unwrap_or(1)),
            (Drain::Empty, ..) => Some(0),
        }
    })?;
    print(&args.json, &disks)?;
    if stays == 0 {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{name}: is not empty: {stays} files, links or pipes stay (`isotherm files status` says why); what can be moved later will be"
    )))
}

fn balance(args: &BalanceArgs) -> Result<(), Failure> {
    let aim = args
        .to
        .map_or_else(|| "even".to_owned(), |to| to.to_string());
    order(
        &args.path,
        "balance",
        if args.cancel { "stop" } else { &aim },
    )?;
    if args.no_wait || args.cancel {
        return print(&args.json, &ask(&args.path, "disks")?);
    }
    let ended = |disks: &Disks| disks.balance_percent.is_none().then_some(());
    let (disks, ()) = wait(&args.path, ended)?;
    print(&args.json, &disks)
}
