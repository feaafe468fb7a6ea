//! `isotherm files disk`: the disks of a mount, one that joins, one that is emptied, and disks that are made equally full.

use std::path::Path;
use std::time::Duration;

use isotherm_answers::files::{DiskState, Disks, Drain};

use super::files_client::{ask, order};
use crate::Failure;
use crate::args::{AddArgs, BalanceArgs, DiskCommand, DiskOrder, DrainArgs};
use crate::json::JsonArg;

/// Interval between two looks at the progress.
const LOOK: Duration = Duration::from_millis(200);

/// # Errors
/// There is no mount of this program, it refuses, or files could not be moved.
pub(super) fn run(command: &DiskCommand) -> Result<(), Failure> {
    match command {
        DiskCommand::List(a) => print(&a.json, &ask(&a.path, "disks")?),
        DiskCommand::Add(a) => add(a),
        DiskCommand::Drain(a) => drain(a),
        DiskCommand::Balance(a) => balance(a),
    }
}

fn print(json: &JsonArg, disks: &Disks) -> Result<(), Failure> {
    let answer = isotherm_answers::json(disks);
    json.print(&answer, || crate::answers::files::disks(disks))
}

/// Gives an order, shows the progress until `ended` says so of the disks, unless nobody waits for that, and prints them.
fn carry_out(
    (what, value): (&str, &str),
    how: &DiskOrder,
    ended: impl Fn(&Disks) -> bool,
) -> Result<Disks, Failure> {
    order(&how.path, what, value)?;
    let bar = crate::progress::Progress::files();
    let disks: Disks = loop {
        let disks: Disks = ask(&how.path, "disks")?;
        if how.cancel || how.no_wait || ended(&disks) {
            break disks;
        }
        if let Some(m) = &disks.moving {
            bar.file(&m.path, m.copied_bytes, m.bytes);
        }
        std::thread::sleep(LOOK);
    };
    bar.finish();
    print(&how.json, &disks)?;
    Ok(disks)
}

fn add(args: &AddArgs) -> Result<(), Failure> {
    // The server has another working directory.
    let real = args.directory.canonicalize();
    let real = real.map_err(|e| Failure::file(&args.directory, "find", &e))?;
    let name = real.to_str().ok_or_else(|| {
        Failure::failed(format!(
            "{}: the path of a disk that is added is UTF-8: rename the directory, or mount with it",
            real.display()
        ))
    })?;
    order(&args.path, "add", name)?;
    let disks: Disks = loop {
        let disks: Disks = ask(&args.path, "disks")?;
        match disks.joining.as_ref().filter(|j| j.path == name) {
            None => break disks,
            Some(joining) => {
                if let Some(why) = &joining.refused {
                    return Err(Failure::failed(why.clone()));
                }
            }
        }
        std::thread::sleep(LOOK);
    };
    print(&args.json, &disks)?;
    crate::log::note(format_args!(
        "isotherm: {name}: is a disk from now on: name it, too (`--slow {name}`), where this file system is mounted, from the next mount on"
    ));
    Ok(())
}

/// How the drain of a disk has ended; `None`: it goes on.
fn drained(disk: Option<&DiskState>) -> Option<Result<(), String>> {
    let Some(disk) = disk else {
        return Some(Err("it is no disk of the slowest tier any more".into()));
    };
    match (disk.drain, disk.left, disk.cannot_move) {
        (Drain::Empty, ..) => Some(Ok(())),
        (Drain::None, ..) => Some(Err("somebody has cancelled that".into())),
        (Drain::Draining, Some(left @ 1..), Some(cannot)) if left == cannot => Some(Err(format!(
            "{left} files, links or pipes stay (`isotherm files status` says why); what can be moved later will be"
        ))),
        (Drain::Draining, ..) => None,
    }
}

fn drain(args: &DrainArgs) -> Result<(), Failure> {
    let (how, number) = (&args.order, args.disk.parse::<u8>().ok());
    // The server has another working directory.
    let real = Path::new(&args.disk).canonicalize().ok();
    let real = real.filter(|_| number.is_none());
    let name = real.map_or_else(|| args.disk.clone(), |p| p.display().to_string());
    let is_it = |d: &&DiskState| number.map_or(d.figures.path == name, |n| n == d.disk);
    let state = |disks: &Disks| drained(disks.disks.iter().find(is_it));
    let what = if how.cancel { "undrain" } else { "drain" };
    let disks = carry_out((what, &name), how, |disks| state(disks).is_some())?;
    match state(&disks).filter(|_| !how.cancel && !how.no_wait) {
        Some(Err(why)) => Err(Failure::failed(format!("{name}: is not empty: {why}"))),
        Some(Ok(())) => {
            let path = disks.disks.iter().find(is_it).map(|d| &d.figures.path);
            crate::log::note(format_args!(
                "isotherm: {0}: is empty: leave out `--slow {0}` where this file system is mounted, from the next mount on",
                path.unwrap_or(&name)
            ));
            Ok(())
        }
        None => Ok(()),
    }
}

fn balance(args: &BalanceArgs) -> Result<(), Failure> {
    let aim = match args.to {
        _ if args.order.cancel => "stop".to_owned(),
        Some(percent) => percent.to_string(),
        None => "even".to_owned(),
    };
    let ended = |disks: &Disks| disks.balance_percent.is_none();
    carry_out(("balance", &aim), &args.order, ended).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_drain_ends_when_nothing_more_can_happen() {
        let disk = json!({
            "tier": 1, "disk": 2, "path": "/d2", "files": 5, "bytes": 9, "free_bytes": 0, "room_bytes": 0, "above_mark": false,
            "missing": false, "failing": false, "read_only": false, "errors": 0, "last_error": null, "last_opened": null, "waiting": null,
            "drain": "draining",
        });
        let mut disk: DiskState = isotherm_answers::read(&disk).expect("a disk");
        let mut ended = |drain, left, cannot_move| {
            (disk.drain, disk.left, disk.cannot_move) = (drain, left, cannot_move);
            drained(Some(&disk))
        };
        assert_eq!(ended(Drain::Draining, Some(5), Some(4)), None);
        assert_eq!(ended(Drain::Draining, Some(0), Some(0)), None);
        assert_eq!(ended(Drain::Empty, None, None), Some(Ok(())));
        let why = |end: Option<Result<(), String>>| end.expect("an end").expect_err("a reason");
        assert!(why(ended(Drain::Draining, Some(5), Some(5))).starts_with("5 files"));
        assert!(why(ended(Drain::None, None, None)).contains("cancelled"));
        assert!(why(drained(None)).contains("no disk"));
    }
}
