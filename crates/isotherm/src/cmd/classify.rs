//! `isotherm classify`: registers the files of a mounted file system, or of a database, as ranges of the volume below them.

use std::path::Path;
use std::time::Duration;

use isotherm_classify::files::{Changes, Options, Place, Ranges, Rules, place_of, walk};
use isotherm_classify::{opencas, postgres};
use serde::Serialize;

use super::classes::register;
use crate::Failure;
use crate::args::ClassifyArgs;
use crate::control::client::{Client, needed, served};

/// Runs the command, once or repeatedly. A failure of the first round ends it. A later one is said, and the next round follows: the file
/// system may be unmounted, the database or the server of the volume may be restarted.
///
/// # Errors
/// The volume is not served, the file system is on another volume, or the location of its files cannot be determined.
pub fn run(args: &ClassifyArgs) -> Result<(), Failure> {
    let mut rounds = Rounds::new(args)?;
    rounds.round()?;
    let Some(pause) = rounds.pause() else {
        return Ok(());
    };
    let mut said = None;
    loop {
        match rounds.wait(pause).and_then(|()| rounds.round()) {
            Ok(()) => said = None,
            Err(e) => {
                let why = e.to_string();
                if said.as_ref() != Some(&why) {
                    crate::log::note(format_args!(
                        "isotherm: {why}; tried again every {} s",
                        pause.as_secs()
                    ));
                    said = Some(why);
                }
                rounds.changes = None;
                std::thread::sleep(pause);
            }
        }
    }
}

/// The default interval of `--watch`.
const WATCH: Duration = Duration::from_secs(60);

/// Registers again and again.
struct Rounds<'a> {
    args: &'a ClassifyArgs,
    /// With `--watch`: notifications of changes; none after a failure.
    changes: Option<Changes>,
    /// The most recent changes may not have been on the device yet when the files were walked, so one more walk follows.
    again: bool,
    /// Where the file system was in the last round, or in the first one with `--force`.
    place: Option<Place>,
}

impl<'a> Rounds<'a> {
    fn new(args: &'a ClassifyArgs) -> Result<Rounds<'a>, Failure> {
        Ok(Rounds {
            args,
            changes: watch(args)?,
            again: true,
            place: None,
        })
    }

    /// Time between two rounds, or between two questions whether something has changed; `None` if one round is wanted.
    fn pause(&self) -> Option<Duration> {
        let every = self.args.every.map(Duration::from_secs);
        every.or(self.args.watch.then_some(WATCH))
    }

    /// Walks or asks once, and registers the result.
    fn round(&mut self) -> Result<(), Failure> {
        let args = self.args;
        let mut client = served(&args.volume)?;
        let (source, ranges, answer, place) = match (&args.fs, &args.postgres) {
            (Some(mountpoint), _) => files(args, &mut client, mountpoint, self.place.as_ref())?,
            (None, Some(dsn)) => database(args, &mut client, dsn)?,
            (None, None) => return Err(Failure::usage("give --fs or --postgres")),
        };
        register(&mut client, source, true, &ranges)?;
        // --force holds for the file system that was there first.
        if self.place.is_none() || !args.force {
            self.place = Some(place);
        }
        args.json.print(&answer, || text(&answer))
    }

    /// Waits until the next round.
    fn wait(&mut self, pause: Duration) -> Result<(), Failure> {
        if !self.args.watch {
            std::thread::sleep(pause);
            return Ok(());
        }
        let Some(changes) = &mut self.changes else {
            // After a failure there is a round in any case.
            self.changes = watch(self.args)?;
            self.again = true;
            return Ok(());
        };
        loop {
            let changed = changes
                .wait(pause)
                .map_err(|e| Failure::failed(format!("fanotify: {e}")))?;
            // Nothing more comes from a file system that is unmounted.
            let here = self.args.fs.as_ref().and_then(|fs| place_of(fs).ok());
            if changed || self.again || here != self.place {
                self.again = changed;
                return Ok(());
            }
        }
    }
}

/// With `--watch`: notifications of changes.
fn watch(args: &ClassifyArgs) -> Result<Option<Changes>, Failure> {
    let Some(mountpoint) = args.fs.as_ref().filter(|_| args.watch) else {
        return Ok(None);
    };
    let what = "watch for changes (fanotify, which needs root)";
    let changes = Changes::of(mountpoint).map_err(|e| Failure::file(mountpoint, what, &e))?;
    Ok(Some(changes))
}

fn text(answer: &Answer) -> String {
    let answer = isotherm_answers::json(answer);
    let fields = answer.as_object().into_iter().flatten();
    let lines: Vec<String> = fields.map(|(k, v)| format!("{k}  {v}\n")).collect();
    lines.concat()
}

/// What `classify --json` says.
#[derive(Serialize)]
#[serde(tag = "source", rename_all = "lowercase")]
enum Answer {
    Files {
        files: u64,
        by_attribute: u64,
        wrong_attribute: u64,
        by_rule: u64,
        failed: u64,
        ranges: usize,
        bytes: u64,
    },
    Database {
        relations: usize,
        files: usize,
        elsewhere: usize,
        failed: u64,
        ranges: usize,
        bytes: u64,
    },
}

type Classified = (&'static str, Ranges, Answer, Place);

fn files(
    args: &ClassifyArgs,
    client: &mut Client,
    mountpoint: &Path,
    first: Option<&Place>,
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
    let place = placed(client, mountpoint, &args.volume, Some(args.force))?;
    if let Some(first) = first.filter(|f| args.force && **f != place) {
        return Err(Failure::failed(format!(
            "{}: its files lie on {} now and lay on {} before: --force holds for the file system that was there first",
            mountpoint.display(),
            place.disk.display(),
            first.disk.display()
        )));
    }
    let options = Options {
        rules,
        open_cas,
        only_rules: args.only_rules,
    };
    let walked = walk(mountpoint, &place, &options).map_err(|e| Failure::failed(e.to_string()))?;
    if place_of(mountpoint).ok().as_ref() != Some(&place) {
        return Err(Failure::failed(format!(
            "{}: its file system was unmounted while its files were walked; nothing was registered",
            mountpoint.display()
        )));
    }
    if let Some((path, value)) = &walked.wrong {
        crate::log::note(format_args!(
            "isotherm: {}: the attribute user.isotherm.class is `{}`, which is no class: give a number up to 63 or a name that `isotherm classes show` prints ({} files; their attributes are ignored)",
            path.display(),
            value.escape_debug(),
            walked.wrong_attribute
        ));
    }
    let answer = Answer::Files {
        files: walked.files,
        by_attribute: walked.by_attribute,
        wrong_attribute: walked.wrong_attribute,
        by_rule: walked.by_rule,
        failed: walked.failed,
        ranges: walked.ranges.len(),
        bytes: walked.ranges.iter().map(|r| r.1).sum(),
    };
    Ok(("files", walked.ranges, answer, place))
}

fn database(args: &ClassifyArgs, client: &mut Client, dsn: &str) -> Result<Classified, Failure> {
    let failed = |e: std::io::Error| Failure::failed(e.to_string());
    let catalogue = postgres::catalogue(dsn).map_err(failed)?;
    let place = placed(client, &catalogue.data, &args.volume, Some(args.force))?;
    let files = postgres::files(&catalogue);
    // Table spaces and logs may be on other devices.
    let is_here = |path: &Path| place_of(path).is_ok_and(|p| p == place);
    let (here, elsewhere): (Vec<_>, Vec<_>) = files.into_iter().partition(|f| is_here(&f.0));
    let (ranges, unread) = postgres::ranges(&here, place.offset);
    let answer = Answer::Database {
        relations: catalogue.relations.len(),
        files: here.len(),
        elsewhere: elsewhere.len(),
        failed: unread,
        ranges: ranges.len(),
        bytes: ranges.iter().map(|r| r.1).sum(),
    };
    Ok(("database", ranges, answer, place))
}

/// The location of the file system of `path`, if it is on the volume as far as can be determined. `force`: whether the user says so; `None`: the
/// command has no option for that.
///
/// # Errors
/// It has no device of its own, or a device that is not this volume's.
pub fn placed(
    client: &mut Client,
    path: &Path,
    volume: &Path,
    force: Option<bool>,
) -> Result<Place, Failure> {
    let place = place_of(path).map_err(|e| Failure::failed(e.to_string()))?;
    let served = client.brief()?;
    let front_ends = needed(served.front_ends, "front_ends")?;
    let pid = needed(served.pid, "pid")?;
    let named = |kind| (front_ends.iter()).filter_map(move |f| f.strip_prefix(kind));
    let is_it = place.backing.as_ref().is_some_and(|backing| {
        // Paths are relative to the working directory of the serving process.
        let from = format!("/proc/{pid}/cwd");
        let known = std::fs::canonicalize(backing).ok();
        let mut shown = named("block-file:")
            .map(|file| std::fs::canonicalize(Path::new(&from).join(file)).ok());
        known.is_some() && shown.any(|s| s == known)
    });
    // The kernel's own device of the volume. A client of NBD or iSCSI on this machine shows only the name of the volume.
    let disk = place.disk.to_string_lossy();
    let is_ublk = named("ublk:").any(|f| f == disk);
    let is_nbd = disk.starts_with("/dev/nbd");
    // The block file of a service is in a mount namespace of its own; its device is not.
    let device = served.device.as_ref().map(|d| Path::new(&d.path));
    let is_device = device == Some(&*place.disk);
    if is_it || is_ublk || is_nbd || is_device || force == Some(true) {
        return Ok(place);
    }
    Err(Failure::failed(format!(
        "{}: its file system lies on {}{}, which is neither the block file nor the ublk device of {}: name the volume below it{}",
        path.display(),
        place.disk.display(),
        place
            .backing
            .as_ref()
            .map_or_else(String::new, |b| format!(" ({})", b.display())),
        volume.display(),
        force.map_or("", |_| ", or give --force if it is that")
    )))
}
