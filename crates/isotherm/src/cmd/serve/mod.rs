//! `isotherm serve`: opens the volume, starts the front ends, and ends them in the right order.

pub(super) mod device;
mod drives;
mod ending;
mod fronts;
mod health;
mod hook;

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use isotherm_answers::Recovery;
use isotherm_control::data_check::DataChecks;
use isotherm_control::drives::Drives;
use isotherm_control::fronts::Fronts;
use isotherm_control::live::{Live, StopReply};
use isotherm_control::spare::Spares;
use isotherm_control::what_if;
use isotherm_live::classes::LayoutWatcher;
use isotherm_live::config::parse_uuid;
use isotherm_live::front_end::{FrontEndSettings, VolumeAccess};
use isotherm_live::{OpenMode, Server, Volume, VolumeConfig};
use isotherm_web::WebServer;

use self::health::Told;
use self::hook::Hook;
use crate::args::ServeArgs;
use crate::control::server::Control;
use crate::events_file::EventsFile;
use crate::place::Registered;
use crate::tap::Tap;
use crate::view::{Own, View};
use crate::{Failure, notify};
use isotherm_control::classes_kept;

/// Serves until stopped.
///
/// # Errors
/// The volume cannot be opened, or a front end cannot be started; then nothing stays mounted or listening.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let args = &checked(args)?;
    let told = told(args)?;
    // Dropped after the volume has ended.
    let mut store = crate::store::start(&args.volume)?;
    let notes = lock_memory();
    // From here on a signal means drain and checkpoint, even while recovery is still running.
    let (ends, ended) = std::sync::mpsc::channel();
    ending::watch_signals(ends.clone())?;
    if args.wait > 0 {
        device::wait_for_members(args, &ended)?;
    }
    let volume = open_over(args, &mut store)?;
    let config = volume.config().clone();
    crate::log::is_about(&config.name);
    let shown = device::DeviceStatus::default();
    let kinds = fronts::kinds(args, &config, &shown)?;
    let fronts = Fronts::new(kinds.iter().flat_map(|k| k.names(&config.name)).collect());
    let (recovery, answers_lost, missing) = found(&volume);
    let server = volume.serve().map_err(|e| Failure::failed(e.to_string()))?;
    // This comes before any client can send a request.
    let events = start_events(args, &server)?;
    let tap = Arc::new(Tap::new(
        server.port(),
        server.handle().classes().map().clone(),
    ));
    let service = Arc::new(Live {
        handle: server.handle(),
        tap: Arc::clone(&tap),
        file: std::path::absolute(isotherm_live::volume::description(&args.volume))
            .map_err(|e| Failure::file(&args.volume, "find its place", &e))?,
        volume: args.volume.clone(),
        config: Mutex::new(config.clone()),
        settings: Mutex::default(),
        begun: Instant::now(),
        fronts: fronts.clone(),
        read_only: args.read_only,
        missing: Mutex::new(missing),
        recovery,
        limits: Mutex::new(crate::figures::Limits::of(&config)),
        ends: Mutex::new(ends),
        checks: Arc::new(DataChecks::load(&args.volume, config.uuid.as_deref())),
        drives: Drives::default(),
        device: shown,
        removes_flash: AtomicBool::new(false),
        spares: Spares::default(),
        closing: OnceLock::new(),
    });
    let keeper = classes(args, &config, &server)?;
    let control = start_control(args, &service)?;
    let metrics = start_metrics(args, &service)?;
    let web = start_web(args, &service)?;
    // However this function ends, the front ends end before the engine does.
    let _end = fronts.ended_with();
    start_fronts(
        kinds,
        &access(&server, &tap, &config, answers_lost),
        &fronts,
    )?;
    let beside = (Registered::new(&args.volume), watchers(&service)?);
    let watch = notify::Watch::start(server.handle());
    ready(&server, &notes);
    let waiting = ending::wait(&ended, &server, &service, args.stop_timeout, told)?;
    let _closing = ending::begin(&service);
    drop((keeper, metrics, web, beside));
    // The front ends end first, so that no new requests come. Then pending requests are served, and a checkpoint is written.
    fronts.end();
    tap.end();
    if !args.read_only {
        let kept = classes_kept::file(&service.file);
        classes_kept::save(&server.handle(), &config, &kept);
    }
    let stopped = stop(server, events, waiting);
    ending::answer_late(ended, &stopped);
    drop((control, watch));
    stopped.map_err(Failure::Failed)
}

/// What looks at the volume now and then, until this is dropped: at the drives under it, and at its requests.
fn watchers(service: &Arc<Live>) -> Result<[Sender<()>; 2], Failure> {
    let shadows = what_if::start(service).map_err(Failure::failed)?;
    Ok([drives::start(service)?, shadows])
}

fn start_events(args: &ServeArgs, server: &Server) -> Result<Option<EventsFile>, Failure> {
    let start = |file| EventsFile::start(file, &server.handle(), args.events_limit);
    args.events.as_deref().map(start).transpose()
}

fn told(args: &ServeArgs) -> Result<Told, Failure> {
    let volume = args.volume.to_string_lossy();
    let hook = args.on_event.as_ref().map(|p| Hook::new(p, &volume));
    Ok(Told::new(hook.transpose()?))
}

/// Stops the engine, and tells the outcome to the clients that asked for it.
fn stop(server: Server, events: Option<EventsFile>, waiting: Vec<StopReply>) -> Result<(), String> {
    let stopped = server.stop().map_err(|e| e.to_string());
    if let Some(events) = events {
        events.finish();
    }
    for asker in waiting {
        // The client may have gone; the outcome is on standard error as well.
        let _ = asker.send(stopped.clone());
    }
    stopped
}

/// The arguments with the front end that `--device` stands for, after all checks that need no member.
fn checked(args: &ServeArgs) -> Result<ServeArgs, Failure> {
    let (args, words) = fronts::chosen(args);
    check(&args)?;
    if let Some(words) = words {
        tracing::info!("{words}");
    }
    Ok(args)
}

/// Checks the arguments before anything is opened.
fn check(args: &ServeArgs) -> Result<(), Failure> {
    fronts::check(args)?;
    if !isotherm_live::volume::description(&args.volume).exists() {
        // This error has the same text in all commands.
        crate::control::client::served(&args.volume)?;
    }
    let control = std::path::absolute(crate::place::socket_path(&args.volume));
    let taken = fronts::sockets(args)?
        .into_iter()
        .find(|path| matches!((std::path::absolute(path), &control), (Ok(p), Ok(c)) if p == *c));
    match taken {
        Some(path) => Err(Failure::usage(format!(
            "{}: is the control socket of this volume: give another path",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// As [`open`]. From then on the store's process belongs to this server; before, it may be another one's.
fn open_over(
    args: &ServeArgs,
    store: &mut Option<crate::store::Running>,
) -> Result<Volume, Failure> {
    let volume = open(args)?;
    if let Some(store) = store {
        store.watch(&args.volume)?;
    }
    Ok(volume)
}

/// Opens the volume and reports the findings. If data was lost, it refuses to continue unless the user allows it.
fn open(args: &ServeArgs) -> Result<Volume, Failure> {
    let mode = match (args.read_only, args.accept_loss, args.without_flash) {
        (true, _, _) => OpenMode::ReadOnly,
        (false, true, _) => OpenMode::AcceptLoss,
        (false, false, true) => OpenMode::ListLoss,
        (false, false, false) => OpenMode::ReadWrite,
    };
    let opened = if args.without_flash {
        Volume::open_without_flash(&args.volume, mode)
    } else {
        Volume::open(&args.volume, mode)
    };
    let volume = opened.map_err(|e| refused(args, &e))?;
    report(&volume);
    judge_loss(&volume, args.accept_loss || !args.read_only)?;
    Ok(volume)
}

/// The error of a volume that cannot be opened. If its members are in use because it is served already, this is said first.
fn refused(args: &ServeArgs, e: &isotherm_live::Error) -> Failure {
    let serves = e.kind == isotherm_live::ErrorKind::InUse
        && matches!(crate::control::client::connect(&args.volume), Ok(Some(_)));
    let v = args.volume.display();
    if !serves {
        let file = isotherm_live::volume::description(&args.volume);
        let in_trial = |c: VolumeConfig| c.policy.contains(super::adopt::TRIAL);
        if e.kind == isotherm_live::ErrorKind::Volume
            && VolumeConfig::load(&file).is_ok_and(in_trial)
        {
            return Failure::failed(format!(
                "{e} (only if its adoption was interrupted: `isotherm release {v}` gives the device back, and `isotherm adopt` begins anew)"
            ));
        }
        return Failure::failed(e.to_string());
    }
    Failure::failed(format!(
        "{v}: this volume is served already (see `isotherm status {v}`): {e}"
    ))
}

/// Locks this program in memory. If there is a limit on locked memory, locking would make later allocations fail; only root has no limit.
fn lock_memory() -> Vec<String> {
    if rustix::process::geteuid().is_root() {
        isotherm_live::server::prepare_process()
    } else {
        Vec::new()
    }
}

/// Switches the sources of classes on or off as the description says, and starts the thread that keeps the layout current.
fn classes(
    args: &ServeArgs,
    config: &VolumeConfig,
    server: &Server,
) -> Result<LayoutWatcher, Failure> {
    let (off, on) = (&config.io.classes_off, &config.io.classes_on);
    let off = off.iter().map(|s| ("classes_off", s, false));
    for (list, source, to) in off.chain(on.iter().map(|s| ("classes_on", s, true))) {
        crate::classes::switch(&server.handle(), source, to)
            .map_err(|e| Failure::failed(format!("{}: {list}: {e}", args.volume.display())))?;
    }
    let description = isotherm_live::volume::description(&args.volume);
    classes_kept::load(&server.handle(), config, &classes_kept::file(&description));
    LayoutWatcher::start(server.handle())
        .map_err(|e| Failure::failed(format!("no thread for classes: {e}")))
}

/// Reports to the parent process that the volume is ready, after the notes about this process.
fn ready(server: &Server, notes: &[String]) {
    for note in notes {
        tracing::warn!("{note}");
    }
    say("ready");
    notify::tell(&format!(
        "READY=1\nSTATUS={}",
        health::well(server.port().volume_bytes())
    ));
}

fn say(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // The parent process may not read the output; the volume is served all the same.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn report(volume: &Volume) {
    for note in volume.notes() {
        tracing::warn!("{note}");
    }
    let r = volume.report();
    if !r.was_clean {
        tracing::info!(
            checkpoint = r.checkpoint,
            records = r.journal_records,
            mapped = r.mapped,
            "recovered: checkpoint {} with {} records, {} journal blocks with {} records, {} from the mirror; {} extents mapped",
            r.checkpoint,
            r.checkpoint_records,
            r.journal_blocks,
            r.journal_records,
            r.from_mirror,
            r.mapped
        );
    }
    for note in &r.notes {
        tracing::warn!("{note}");
    }
    if r.incomplete {
        tracing::warn!(
            "the map may lack extents: what it lacks reads as an error, not as zeros (in a cache volume: as the slow tier has it)"
        );
    }
}

/// A volume that lost data with its cache says so, and is served to read only if the user accepts the loss. (If it is written to, opening has
/// decided: what is lost is accepted, or listed.)
fn judge_loss(volume: &Volume, accept: bool) -> Result<(), Failure> {
    let lost = volume.lost_writes();
    if lost.is_nothing() {
        return Ok(());
    }
    let words = lost.words();
    if accept {
        tracing::warn!("{words}");
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{words}\nattach the member; or serve what is left with --read-only --accept-loss"
    )))
}

/// What opening has found: what was recovered, whether answered writes were lost, and the places of members that are missing.
fn found(volume: &Volume) -> (Recovery, bool, Vec<u8>) {
    let r = volume.report();
    let missing = r.missing.iter().map(|m| m.0).collect();
    let recovery = Recovery {
        was_clean: r.was_clean,
        checkpoint: r.checkpoint,
        checkpoint_records: r.checkpoint_records,
        journal_blocks: r.journal_blocks,
        journal_records: r.journal_records,
        from_mirror: r.from_mirror,
        mapped: r.mapped,
        incomplete: r.incomplete,
    };
    (recovery, volume.answers_lost(), missing)
}

/// The parameters that all front ends get.
fn access(
    server: &Server,
    tap: &Arc<Tap>,
    config: &VolumeConfig,
    answers_lost: bool,
) -> VolumeAccess {
    VolumeAccess {
        engine: server.handle(),
        port: tap.clone(),
        name: config.name.clone(),
        uuid: (config.uuid.as_deref().and_then(parse_uuid)).unwrap_or_default(),
        extent: config.extent.0 as u32,
        answers_lost,
    }
}

fn start_fronts(
    kinds: Vec<Box<dyn FrontEndSettings>>,
    volume: &VolumeAccess,
    fronts: &Fronts,
) -> Result<(), Failure> {
    for kind in kinds {
        let started = kind.start(volume);
        let started = started.map_err(|e| Failure::failed(crate::failure::reason(&e)))?;
        fronts.lock().add(started);
    }
    Ok(())
}

fn start_control(args: &ServeArgs, service: &Arc<Live>) -> Result<Control, Failure> {
    let socket = crate::place::socket_to_listen(&args.volume)
        .map_err(|e| Failure::file(&args.volume, "make the directory of its socket", &e))?;
    let spare = crate::place::spare_to_listen();
    Control::start(&socket, spare.as_deref(), service.clone())
}

/// `--web`: the view of this volume alone.
fn start_web(args: &ServeArgs, service: &Arc<Live>) -> Result<Option<WebServer>, Failure> {
    let own = View::new(Own(Arc::clone(service)));
    crate::view::start(args.web.as_ref(), &args.web_view, Arc::new(own))
}

/// `--metrics`: each scrape gets its figures from the engine.
fn start_metrics(
    args: &ServeArgs,
    service: &Arc<Live>,
) -> Result<Option<isotherm_web::TextServer>, Failure> {
    let Some(address) = &args.metrics else {
        return Ok(None);
    };
    let service = Arc::clone(service);
    let server = crate::metrics::start(address, move || {
        isotherm_control::metrics::text(service.snapshot()?).map_err(|e| e.to_string())
    })?;
    tracing::info!(
        address = server.address(),
        "metrics at {}",
        server.address()
    );
    Ok(Some(server))
}
