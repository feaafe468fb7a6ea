//! `isotherm classify`: registers the files of a mounted file system, or of a database, as ranges of the volume below them.

use std::path::Path;
use std::time::Duration;

use isotherm_classify::files::{Changes, Options, Place, Ranges, Rules, place_of, walk};
use isotherm_classify::{opencas, postgres};
use serde_json::{Value, json};

use super::classes::register;
use crate::Failure;
use crate::args::ClassifyArgs;
use crate::control::Request;
use crate::control::client::{Client, served};

/// Runs the command, once or repeatedly.
///
/// # Errors
/// The volume is not served, the file system is on another volume, or the location of its files cannot be determined.
pub fn run(args: &ClassifyArgs) -> Result<(), Failure> {
    let mut changes = match (&args.fs, args.watch) {
        (Some(mountpoint), true) => Some(Changes::of(mountpoint).map_err(|e| {
            Failure::file(
                mountpoint,
                "watch for changes (fanotify, which needs root)",
                &e,
            )
        })?),
        _ => None,
    };
    let mut again = true;
    loop {
        let mut client = served(&args.volume)?;
        let (source, ranges, answer) = match (&args.fs, &args.postgres) {
            (Some(mountpoint), _) => files(args, &mut client, mountpoint)?,
            (None, Some(dsn)) => database(args, &mut client, dsn)?,
            (None, None) => return Err(Failure::usage("give --fs or --postgres")),
        };
        register(&mut client, source, true, &ranges)?;
        args.json.print(&answer, || text(&answer))?;
        let every = args.every.map(Duration::from_secs);
        match (&mut changes, every) {
            (None, None) => return Ok(()),
            (None, Some(time)) => std::thread::sleep(time),
            (Some(changes), time) => wait_for_change(changes, &mut again, time.unwrap_or(WATCH))?,
        }
    }
}

/// The default interval of `--watch`.
const WATCH: Duration = Duration::from_secs(60);

/// Waits until something has changed. The most recent changes may not have been on the device yet when the files were walked, so one more
/// walk follows (`again`).
fn wait_for_change(changes: &mut Changes, again: &mut bool, time: Duration) -> Result<(), Failure> {
    loop {
        let changed = changes
            .wait(time)
            .map_err(|e| Failure::failed(format!("fanotify: {e}")))?;
        if changed || *again {
            *again = changed;
            return Ok(());
        }
    }
}

fn text(answer: &Value) -> String {
    let fields = answer.as_object().into_iter().flatten();
    let lines: Vec<String> = fields.map(|(k, v)| format!("{k}  {v}\n")).collect();
    lines.concat()
}

type Classified = (&'static str, Ranges, Value);

fn files(
    args: &ClassifyArgs,
    client: &mut Client,
    mountpoint: &Path,
) -> Result<Classified, Failure> {
    let rules = match &args.rules {
        None => Rules::default(),
        Some(file) => {
            let text =
                std::fs::read_to_string(file).map_err(|e| Failure::file(file, "read", &e))?;
            Rules::parse(&text)
                .map_err(|e| Failure::failed(format!("{}: {}", file.display(), e.trim_end())))?
        }
    };
    let open_cas = match &args.open_cas {
        None => opencas::Import::default(),
        Some(file) => super::classes::open_cas(file)?,
    };
    let place = placed(client, mountpoint, &args.volume, args.force)?;
    let options = Options {
        rules,
        open_cas,
        only_rules: args.only_rules,
    };
    let walked = walk(mountpoint, &place, &options).map_err(|e| Failure::failed(e.to_string()))?;
    if let Some((path, value)) = &walked.wrong {
        eprintln!(
            "isotherm: {}: the attribute user.isotherm.class is `{}`, which is no class: give a number up to 63 or a name that `isotherm classes show` prints ({} files; their attributes are ignored)",
            path.display(),
            value.escape_debug(),
            walked.wrong_attribute
        );
    }
    let answer = json!({
        "source": "files", "files": walked.files, "by_attribute": walked.by_attribute,
        "wrong_attribute": walked.wrong_attribute, "by_rule": walked.by_rule, "failed": walked.failed, "ranges": walked.ranges.len(),
        "bytes": walked.ranges.iter().map(|r| r.1).sum::<u64>(),
    });
    Ok(("files", walked.ranges, answer))
}

fn database(args: &ClassifyArgs, client: &mut Client, dsn: &str) -> Result<Classified, Failure> {
    let failed = |e: std::io::Error| Failure::failed(e.to_string());
    let catalogue = postgres::catalogue(dsn).map_err(failed)?;
    let place = placed(client, &catalogue.data, &args.volume, args.force)?;
    let files = postgres::files(&catalogue);
    // Table spaces and logs may be on other devices.
    let is_here = |path: &Path| place_of(path).is_ok_and(|p| p == place);
    let (here, elsewhere): (Vec<_>, Vec<_>) = files.into_iter().partition(|f| is_here(&f.0));
    let (ranges, unread) = postgres::ranges(&here, place.offset);
    let answer = json!({
        "source": "database", "relations": catalogue.relations.len(), "files": here.len(),
        "elsewhere": elsewhere.len(), "failed": unread, "ranges": ranges.len(),
        "bytes": ranges.iter().map(|r| r.1).sum::<u64>(),
    });
    Ok(("database", ranges, answer))
}

/// The location of the file system of `path`, if it is on the volume as far as can be determined.
///
/// # Errors
/// It has no device of its own, or a device that is not this volume's.
pub fn placed(
    client: &mut Client,
    path: &Path,
    volume: &Path,
    force: bool,
) -> Result<Place, Failure> {
    let place = place_of(path).map_err(|e| Failure::failed(e.to_string()))?;
    let status = client.ask(&Request::Status)?;
    let shown = status["front_ends"].as_array().into_iter().flatten();
    let shown = shown.filter_map(|f| f.as_str()?.strip_prefix("block-file:"));
    let is_it = place.backing.as_ref().is_some_and(|backing| {
        // Paths are relative to the working directory of the serving process.
        let from = format!("/proc/{}/cwd", status["pid"]);
        let known = std::fs::canonicalize(backing).ok();
        let mut shown = shown.map(|file| std::fs::canonicalize(Path::new(&from).join(file)).ok());
        known.is_some() && shown.any(|s| s == known)
    });
    // The kernel's own device of the volume. A client of NBD or iSCSI on this machine shows only the name of the volume.
    let disk = place.disk.to_string_lossy();
    let is_ublk = (status["front_ends"].as_array().into_iter().flatten())
        .any(|f| f.as_str().and_then(|f| f.strip_prefix("ublk:")) == Some(&*disk));
    let is_nbd = disk.starts_with("/dev/nbd");
    // The block file of a service is in a mount namespace of its own; its device is not.
    let is_device = status["device"]["path"].as_str().map(Path::new) == Some(&*place.disk);
    if is_it || is_ublk || is_nbd || is_device || force {
        return Ok(place);
    }
    Err(Failure::failed(format!(
        "{}: its file system lies on {}{}, which is neither the block file nor the ublk device of {}: name the volume below it, or give --force if it is that",
        path.display(),
        place.disk.display(),
        place
            .backing
            .as_ref()
            .map_or_else(String::new, |b| format!(" ({})", b.display())),
        volume.display()
    )))
}
