//! `isotherm mount`, and `isotherm files`, which queries a mounted file system through extended attributes.

use std::sync::Arc;
use std::time::Duration;

use isotherm_answers::files::{Check, Moves, Stats, Status};
use isotherm_files::fuse::Io;
use isotherm_files::heads::HeadSettings;
use isotherm_files::mount::{Mounted, Options, mount};
use isotherm_files::ranges::RangeSettings;
use isotherm_files::store::Settings;
use serde::Serialize;
use serde_json::Value;

use super::files_client::{ask, order, withdraw};
use crate::Failure;
use crate::args::{
    FilesCheckArgs, FilesCommand, FilesStatusArgs, MigrateArgs, MountArgs, PassthroughArg,
    PathArgs, PolicyArgs,
};
use crate::json::JsonArg;

/// After a signal, the users of the file system have this time to finish.
const USERS_TIMEOUT: Duration = Duration::from_secs(10);

/// `isotherm mount`: runs in the foreground until the file system is unmounted or a signal comes.
///
/// # Errors
/// A message in words, before anything is mounted; or the file system was in use at the end.
pub fn run_mount(args: &MountArgs) -> Result<(), Failure> {
    let mut tiers = vec![args.fast.clone()];
    tiers.extend(args.tier.iter().cloned());
    let (slow, more_slow) = args
        .slow
        .split_first()
        .ok_or_else(|| Failure::usage("--slow: name a directory"))?;
    tiers.push(slow.clone());
    let mut quotas = vec![None; tiers.len()];
    for (tier, bytes) in &args.quota {
        match quotas.get_mut(usize::from(*tier)) {
            Some(q) => *q = Some(*bytes),
            None => {
                return Err(Failure::usage(format!(
                    "--quota {tier}: there are only {} tiers, 0 the fast one",
                    tiers.len()
                )));
            }
        }
    }
    let (heads, ranges) = kept(args);
    let settings = Settings {
        tiers,
        more_slow: more_slow.to_vec(),
        create: args.create.rule(),
        policy: args.policy.clone(),
        marks: args.watermarks,
        quotas,
        rules: args.rule.clone(),
        moves: !args.no_moves,
        degraded: args.degraded,
        accept: args.accept_tiers,
        copies: args.copies,
        heads,
        ranges,
        chaos: args.chaos,
    };
    let io = match args.passthrough {
        Some(PassthroughArg::All) => Io::Passthrough,
        Some(PassthroughArg::Reads) => Io::PassthroughReads,
        None if args.writeback => Io::Writeback,
        None => Io::Cached,
    };
    let options = Options {
        io,
        threads: usize::from(args.threads),
        allow_other: !args.private && rustix::process::getuid().is_root(),
        read_only: args.read_only,
    };
    let mut signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGHUP,
    ])
    .map_err(|e| Failure::failed(format!("cannot listen to signals: {e}")))?;
    let mounted = mount(&settings, &args.mountpoint, &options).map_err(|e| Failure::failed(e.0))?;
    let _metrics = start_metrics(args.metrics.as_ref(), &mounted)?;
    // The program that started this one may not read its output.
    let _ = crate::json::to_stdout("ready\n");
    let end = mounted.ender();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            // It may have ended by itself.
            let _ = end.send(());
        }
    });
    mounted.wait();
    mounted
        .unmount(USERS_TIMEOUT)
        .map_err(|e| Failure::failed(e.0))
}

/// What the fast tier keeps of files that are on slower ones.
fn kept(args: &MountArgs) -> (HeadSettings, RangeSettings) {
    let mut ranges = RangeSettings::default();
    ranges.percent = args.ranges.unwrap_or(ranges.percent);
    let heads = |(bytes, percent)| HeadSettings { bytes, percent };
    (args.heads.map(heads).unwrap_or_default(), ranges)
}

/// `--metrics`: each scrape gets the figures of that moment.
fn start_metrics(
    at: Option<&isotherm_web::Address>,
    mounted: &Mounted,
) -> Result<Option<isotherm_web::TextServer>, Failure> {
    let Some(at) = at else { return Ok(None) };
    let store = Arc::downgrade(&mounted.store);
    let server = crate::metrics::start(at, move || {
        let store = store.upgrade().ok_or("it is unmounted")?;
        let disks = isotherm_files::control::disks(&store);
        let stats = isotherm_files::control::stats(&store);
        Ok(crate::files_metrics::text(&disks, &stats))
    })?;
    tracing::info!(
        address = server.address(),
        "metrics at {}",
        server.address()
    );
    Ok(Some(server))
}

/// `isotherm files`.
///
/// # Errors
/// There is no mount of this program, or it refuses.
pub fn run(command: &FilesCommand) -> Result<(), Failure> {
    match command {
        FilesCommand::Status(a) => status(a),
        FilesCommand::Stats(a) => show(a, "stats"),
        FilesCommand::Where(a) => show(a, "where"),
        FilesCommand::Why(a) => show(a, "why"),
        FilesCommand::Pin(a) => order(&a.path, "pin", &a.to),
        FilesCommand::Unpin(a) => withdraw(&a.path, "pin"),
        FilesCommand::Migrate(a) => migrate(a),
        FilesCommand::Disk(a) => super::files_disk::run(&a.command),
        FilesCommand::Check(a) => check(a),
        FilesCommand::Policy(a) => policy(a),
        FilesCommand::Record(_) => Err(crate::lab_program::start()),
    }
}

fn status(args: &FilesStatusArgs) -> Result<(), Failure> {
    if args.all {
        return show(&args.of, "status");
    }
    let path = &args.of.path;
    let answer: Value = ask(path, "status")?;
    // A mount of another version may not have all keys that the page needs: then there is what it has.
    (args.of.json).print(&answer, || match isotherm_answers::read(&answer) {
        Ok(status) => crate::answers::files::status(path, &status),
        Err(_) => super::ask::lines(&answer, ""),
    })
}

fn show(PathArgs { path, json }: &PathArgs, what: &str) -> Result<(), Failure> {
    print(json, &ask::<Value>(path, what)?)
}

fn migrate(args: &MigrateArgs) -> Result<(), Failure> {
    if args.dry_run {
        return print(&args.json, &ask::<Value>(&args.path, "migrate")?);
    }
    let before: Stats = ask(&args.path, "stats")?;
    order(&args.path, "migrate", "now")?;
    let bar = crate::progress::Progress::files();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let status: Status = ask(&args.path, "status")?;
        if let Some(m) = status.moving {
            bar.file(&m.path, m.copied_bytes, m.bytes);
        }
        if !status.migrating {
            break;
        }
    }
    bar.finish();
    let after: Stats = ask(&args.path, "stats")?;
    let moved = |of: fn(&Moves) -> u64| of(&after.moves).saturating_sub(of(&before.moves));
    let answer = Moves {
        done: moved(|m| m.done),
        refused: moved(|m| m.refused),
        failed: moved(|m| m.failed),
    };
    print(&args.json, &answer)?;
    if answer.failed > 0 {
        Err(Failure::Bad)
    } else {
        Ok(())
    }
}

/// Prints an answer, or all its keys as text.
fn print<T: Serialize>(json: &JsonArg, answer: &T) -> Result<(), Failure> {
    let answer = isotherm_answers::json(answer);
    json.print(&answer, || super::ask::lines(&answer, ""))
}

fn check(args: &FilesCheckArgs) -> Result<(), Failure> {
    let mut answer: Check = ask(&args.path, "check")?;
    if args.repair && !answer.ok {
        order(&args.path, "check", "repair")?;
        answer.repaired = true;
    }
    print(&args.json, &answer)?;
    if answer.ok || args.repair {
        Ok(())
    } else {
        Err(Failure::Bad)
    }
}

fn policy(args: &PolicyArgs) -> Result<(), Failure> {
    match &args.preset {
        Some(preset) => order(&args.dir, "policy", &format!("{preset}:{}", args.share)),
        None => withdraw(&args.dir, "policy"),
    }
}
