//! `isotherm mount`, and `isotherm files`, which queries a mounted file system through extended attributes.

use std::time::Duration;

use isotherm_files::fuse::Io;
use isotherm_files::heads::HeadSettings;
use isotherm_files::mount::{Options, mount};
use isotherm_files::store::Settings;
use serde_json::{Value, json};

use super::files_client::{ask, order, withdraw};
use crate::Failure;
use crate::args::{
    FilesCheckArgs, FilesCommand, FilesStatusArgs, MigrateArgs, MountArgs, PassthroughArg,
    PathArgs, PolicyArgs,
};

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
        heads: args
            .heads
            .map_or(HeadSettings::default(), |(bytes, percent)| HeadSettings {
                bytes,
                percent,
            }),
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
    let answer = ask(path, "status")?;
    (args.of.json).print(&answer, || crate::answers::files::status(path, &answer))
}

fn show(args: &PathArgs, what: &str) -> Result<(), Failure> {
    let answer = ask(&args.path, what)?;
    args.json.print(&answer, || super::ask::lines(&answer, ""))
}

fn migrate(args: &MigrateArgs) -> Result<(), Failure> {
    if args.dry_run {
        let answer = ask(&args.path, "migrate")?;
        return args.json.print(&answer, || super::ask::lines(&answer, ""));
    }
    let before = ask(&args.path, "stats")?;
    order(&args.path, "migrate", "now")?;
    let bar = crate::progress::Progress::files();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let status = ask(&args.path, "status")?;
        if let (Some(path), Some(done), Some(all)) = (
            status["moving"]["path"].as_str(),
            status["moving"]["copied_bytes"].as_u64(),
            status["moving"]["bytes"].as_u64(),
        ) {
            bar.file(path, done, all);
        }
        if status["migrating"] != json!(true) {
            break;
        }
    }
    bar.finish();
    let after = ask(&args.path, "stats")?;
    let moved = |how: &str| {
        let n = |s: &Value| s["moves"][how].as_u64().unwrap_or(0);
        n(&after).saturating_sub(n(&before))
    };
    let answer =
        json!({"done": moved("done"), "refused": moved("refused"), "failed": moved("failed")});
    args.json
        .print(&answer, || super::ask::lines(&answer, ""))?;
    if moved("failed") > 0 {
        Err(Failure::Bad)
    } else {
        Ok(())
    }
}

fn check(args: &FilesCheckArgs) -> Result<(), Failure> {
    let mut answer = ask(&args.path, "check")?;
    let ok = answer["ok"] == json!(true);
    if args.repair && !ok {
        order(&args.path, "check", "repair")?;
        answer["repaired"] = json!(true);
    }
    args.json
        .print(&answer, || super::ask::lines(&answer, ""))?;
    if ok || args.repair {
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
