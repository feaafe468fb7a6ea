//! `isotherm serve`: opens the volume, starts the front ends, and ends them in the right order.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_core::engine::is_knob;
use isotherm_core::{Nanos, World};
use isotherm_live::nbd::server::{Address, Config, Server as NbdServer};
use isotherm_live::port::Port;
use isotherm_live::recorder::Recording;
use isotherm_live::{Handle, OpenMode, Volume, VolumeConfig, block_file};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::settings::{keep_value, with_param, with_words};
use crate::args::ServeArgs;
use crate::control::entry::Entry;
use crate::control::server::{Control, Service};
use crate::control::{Request, socket_path};
use crate::events_file::EventsFile;
use crate::policy_spec::param_words;
use crate::tap::Tap;
use crate::{Failure, figures};

/// How often the main thread looks whether the engine's thread is still there.
const WATCH: Duration = Duration::from_millis(500);

/// Why serving ends.
enum End {
    Signal,
    /// Somebody waits for the outcome.
    Asked(Sender<Result<(), String>>),
}

/// Serve until stopped.
///
/// # Errors
/// The volume cannot be opened or a front end not started; nothing stays mounted or listening then.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let addresses = args
        .nbd
        .iter()
        .map(|a| {
            a.parse::<Address>()
                .map_err(|e| Failure::usage(e.to_string()))
        })
        .collect::<Result<Vec<_>, _>>()?;
    if args.ublk {
        return Err(Failure::failed(
            "ublk is not in this build: use --block-file DIR and a loop device, or --nbd",
        ));
    }
    // Under a limit on locked memory, locking would make later allocations fail: only root has none.
    let notes = if rustix::process::geteuid().is_root() {
        isotherm_live::server::prepare_process()
    } else {
        Vec::new()
    };
    // From here on a signal means drain and checkpoint, also while recovery still runs.
    let (ends, ended) = mpsc::channel();
    watch_signals(ends.clone())?;
    let mode = match (args.read_only, args.accept_loss) {
        (true, _) => OpenMode::ReadOnly,
        (false, true) => OpenMode::AcceptLoss,
        (false, false) => OpenMode::ReadWrite,
    };
    let volume = Volume::open(&args.volume, mode).map_err(|e| Failure::failed(e.to_string()))?;
    for note in &notes {
        eprintln!("isotherm: {note}");
    }
    report(&volume);
    judge_loss(&volume, args.accept_loss)?;
    let config = volume.config().clone();
    let recovery = recovery(&volume);
    let missing: Vec<u8> = volume.report().missing.iter().map(|m| m.0).collect();
    let server = volume.serve().map_err(|e| Failure::failed(e.to_string()))?;
    // Before anybody can send a request.
    let events = match &args.events {
        Some(file) => Some(EventsFile::start(
            file,
            &server.handle(),
            args.events_limit,
        )?),
        None => None,
    };
    let tap = Arc::new(Tap::new(server.port()));
    let service = Live {
        handle: server.handle(),
        tap: Arc::clone(&tap),
        file: std::path::absolute(isotherm_live::volume::description(&args.volume))
            .map_err(|e| Failure::file(&args.volume, "find its place", &e))?,
        volume: args.volume.clone(),
        config: Mutex::new(config.clone()),
        settings: Mutex::default(),
        begun: Instant::now(),
        front_ends: front_end_names(args, &config),
        read_only: args.read_only,
        missing,
        recovery,
        ends: Mutex::new(ends),
    };
    let control = Control::start(&socket_path(&args.volume), Arc::new(service))?;
    let port: Arc<dyn Port> = tap.clone();
    let nbd = if addresses.is_empty() {
        None
    } else {
        Some(
            NbdServer::start_on_engine(
                server.handle(),
                Arc::clone(&port),
                &addresses,
                Config::new(&config.name),
            )
            .map_err(|e| Failure::failed(crate::failure::reason(&e)))?,
        )
    };
    let options = block_file::Options {
        preferred_bytes: config.extent.0 as u32,
        ..block_file::Options::default()
    };
    let mut mount = match &args.block_file {
        Some(dir) => Some(
            block_file::mount_on_engine(&server.handle(), port, dir, &config.name, &options)
                .map_err(|e| Failure::failed(e.to_string()))?,
        ),
        None => None,
    };
    say("ready");
    let waiting = wait(&ended, &server, &mut mount)?;
    // Front ends first, so that nothing new comes; then what was handed over is served and written down.
    drop(mount);
    if let Some(nbd) = nbd {
        nbd.stop();
    }
    tap.end();
    let stopped = server.stop().map_err(|e| e.to_string());
    if let Some(events) = events {
        events.finish();
    }
    if let Some(waiting) = waiting {
        // The asker may have gone; the outcome is on standard error as well.
        let _ = waiting.send(stopped.clone());
    }
    drop(control);
    stopped.map_err(Failure::Failed)
}

fn say(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // Whoever started us may not listen; the volume is served all the same.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn watch_signals(ends: Sender<End>) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::failed(format!("cannot watch for signals: {e}"));
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if ends.send(End::Signal).is_err() {
                    return;
                }
            }
        })
        .map_err(failed)?;
    Ok(())
}

/// Wait for a reason to end. A stop that was asked for is refused while the block file is in use; a signal is obeyed.
fn wait(
    ended: &Receiver<End>,
    server: &isotherm_live::Server,
    mount: &mut Option<block_file::Mount>,
) -> Result<Option<Sender<Result<(), String>>>, Failure> {
    loop {
        let end = match ended.recv_timeout(WATCH) {
            Err(RecvTimeoutError::Timeout) if server.has_died() => {
                return Err(Failure::failed(
                    "the engine's thread ended unexpectedly: serve again, recovery follows",
                ));
            }
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Ok(end) => end,
        };
        let unmounted = mount.as_mut().map_or(Ok(()), block_file::Mount::unmount);
        match (unmounted, end) {
            (Ok(()), End::Asked(waiting)) => return Ok(Some(waiting)),
            (Ok(()), End::Signal) => return Ok(None),
            (Err(e), End::Asked(waiting)) => {
                // Nobody listens any more: then it was not important.
                let _ = waiting.send(Err(e.to_string()));
            }
            (Err(e), End::Signal) => {
                eprintln!("isotherm: {e}; ending all the same: its users get errors from now on");
                return Ok(None);
            }
        }
    }
}

fn report(volume: &Volume) {
    for note in volume.notes() {
        eprintln!("isotherm: {note}");
    }
    let r = volume.report();
    if !r.was_clean {
        eprintln!(
            "isotherm: recovered: checkpoint {} with {} records, {} journal blocks with {} records, {} from the mirror; {} extents mapped",
            r.checkpoint,
            r.checkpoint_records,
            r.journal_blocks,
            r.journal_records,
            r.from_mirror,
            r.mapped
        );
    }
    for note in &r.notes {
        eprintln!("isotherm: {note}");
    }
    if r.incomplete {
        eprintln!(
            "isotherm: the map may lack extents: what it lacks reads as an error, not as zeros"
        );
    }
}

/// What a volume lost with its cache is not passed over in silence, and not served unless somebody says so.
fn judge_loss(volume: &Volume, accept: bool) -> Result<(), Failure> {
    let lost = volume.lost_writes();
    if lost.is_nothing() {
        return Ok(());
    }
    let words = lost.words();
    if accept {
        eprintln!("isotherm: {words}");
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{words}\nattach the member; or serve what is left with --read-only --accept-loss, or without --read-only to go on without these writes"
    )))
}

fn recovery(volume: &Volume) -> Value {
    let r = volume.report();
    json!({
        "was_clean": r.was_clean, "checkpoint": r.checkpoint, "checkpoint_records": r.checkpoint_records,
        "journal_blocks": r.journal_blocks, "journal_records": r.journal_records, "from_mirror": r.from_mirror,
        "mapped": r.mapped, "incomplete": r.incomplete,
    })
}

fn front_end_names(args: &ServeArgs, config: &VolumeConfig) -> Vec<String> {
    let file = args
        .block_file
        .iter()
        .map(|d| format!("block-file:{}", d.join(&config.name).display()));
    file.chain(args.nbd.iter().map(|a| format!("nbd:{a}")))
        .collect()
}

/// What the control socket reaches.
struct Live {
    handle: Handle,
    tap: Arc<Tap>,
    volume: PathBuf,
    file: PathBuf,
    config: Mutex<VolumeConfig>,
    /// One change of settings at a time.
    settings: Mutex<()>,
    begun: Instant,
    front_ends: Vec<String>,
    read_only: bool,
    missing: Vec<u8>,
    recovery: Value,
    ends: Mutex<Sender<End>>,
}

impl Live {
    fn config(&self) -> VolumeConfig {
        self.config
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn setting(&self) -> MutexGuard<'_, ()> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed(&self) -> Nanos {
        Nanos(self.begun.elapsed().as_nanos() as u64)
    }

    fn on_engine<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut isotherm_live::recorder::Driver, &mut isotherm_live::world::UringWorld) -> R
        + Send
        + 'static,
    ) -> Result<R, String> {
        self.handle
            .call(f)
            .ok_or_else(|| "the volume is closing".to_owned())
    }

    fn status(&self) -> Result<Value, String> {
        let config = self.config();
        let mut status = super::ask::describe(&self.volume, &config);
        let (geo, mapped, params, copies) = self.on_engine(|e, _| {
            let mapped = e.space().map.mapped();
            let geo = e.space().geo.clone();
            (geo, mapped, figures::params(e), figures::copies(e))
        })?;
        for (k, v) in [
            ("state", json!("serving")),
            ("read_only", json!(self.read_only)),
            ("degraded", json!(!self.missing.is_empty())),
            ("missing_members", json!(self.missing)),
            ("volume_bytes", json!(geo.volume_bytes())),
            ("block_bytes", json!(geo.block_bytes())),
            ("mapped_extents", json!(mapped)),
            ("copies", copies),
            ("params", params),
            ("front_ends", json!(self.front_ends)),
            ("pid", json!(std::process::id())),
            ("elapsed_s", json!(self.elapsed().as_secs_f64())),
            ("recovery", self.recovery.clone()),
        ] {
            status[k] = v;
        }
        Ok(status)
    }

    /// Set numbers, all or none.
    fn set(&self, values: &[(String, f64)]) -> Result<Value, String> {
        let _one = self.setting();
        let wanted = values.to_vec();
        let (outcome, params, name) = self.on_engine(move |engine, world| {
            let now = world.now();
            let before = engine.knobs();
            let mut outcome = Ok(());
            for (key, value) in &wanted {
                outcome = engine.set(now, key, *value).map_err(|e| (key.clone(), e));
                if outcome.is_err() {
                    // All or none: put back what was set already. These values were accepted once.
                    for (k, v) in &before {
                        let _ = engine.set(now, k, *v);
                    }
                    break;
                }
            }
            (outcome, figures::params(engine), engine.policy_name())
        })?;
        outcome
            .map_err(|(key, e)| param_words(&format!("policy `{name}` or the engine"), &key, &e))?;
        self.keep(values)?;
        Ok(json!({"params": params}))
    }

    /// Set names, and numbers with them, all or none. A name may change what a policy is (a write mode, a rule), so the policy is
    /// built anew and takes over as after `policy=`: recordings and the next start know it by its description alone.
    fn set_words(
        &self,
        values: &[(String, f64)],
        words: &[(String, String)],
    ) -> Result<Value, String> {
        let _one = self.setting();
        let (knobs, params): (Vec<_>, Vec<_>) =
            (values.iter().cloned()).partition(|(k, _)| is_knob(k));
        for (k, v) in words {
            if v.contains(',') {
                return Err(format!("{k}={v}: a value has no comma"));
            }
            if is_knob(k) {
                return Err(format!("{k}={v}: the value must be a number"));
            }
        }
        let mut text = with_words(&self.config().policy, words);
        for (k, v) in &params {
            text = with_param(&text, k, *v);
        }
        let policy = isotherm_live::config::build_policy(&text)?;
        let (wanted, told) = (knobs.clone(), text.clone());
        let answer = self.on_engine(move |engine, world| {
            let now = world.now();
            let before = engine.knobs();
            let mut outcome = Ok(());
            for (key, value) in &wanted {
                let set = engine.set(now, key, *value);
                outcome = outcome.and(set.map_err(|e| param_words("the engine", key, &e)));
            }
            let outcome = outcome.and_then(|()| {
                let switched = engine.set_policy(now, &told, policy);
                switched.map_err(|e| format!("policy: {told}: {e}"))
            });
            if outcome.is_err() {
                for (k, v) in &before {
                    let _ = engine.set(now, k, *v); // accepted once
                }
            }
            outcome.map(|()| {
                json!({"policy": told, "params": figures::params(engine), "copies": figures::copies(engine)})
            })
        })??;
        self.keep_config(|config| {
            for (key, value) in &knobs {
                keep_value(config, key, *value);
            }
            config.policy = text;
        })?;
        Ok(answer)
    }

    /// Let another policy take over, and keep the choice for the next start.
    fn set_policy(&self, text: &str) -> Result<Value, String> {
        let _one = self.setting();
        let policy = isotherm_live::config::build_policy(text)?;
        let told = text.to_owned();
        let (outcome, params, copies) = self.on_engine(move |engine, world| {
            let outcome = engine.set_policy(world.now(), &told, policy);
            (outcome, figures::params(engine), figures::copies(engine))
        })?;
        outcome.map_err(|e| format!("policy: {text}: {e}"))?;
        self.keep_config(|config| text.clone_into(&mut config.policy))?;
        Ok(json!({"policy": text, "params": params, "copies": copies}))
    }

    /// Write changed parameters into the description, so that they hold after the next start.
    fn keep(&self, values: &[(String, f64)]) -> Result<(), String> {
        self.keep_config(|config| {
            for (key, value) in values {
                keep_value(config, key, *value);
            }
        })
    }

    fn keep_config(&self, change: impl FnOnce(&mut VolumeConfig)) -> Result<(), String> {
        let mut held = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let mut config = held.clone();
        change(&mut config);
        config
            .save(&self.file)
            .map_err(|e| format!("set for now, but not kept for the next start: {e}"))?;
        *held = config;
        Ok(())
    }
}

impl Service for Live {
    fn answer(&self, request: &Request) -> Result<Value, String> {
        match request {
            Request::Status => self.status(),
            Request::Stats => {
                let (config, elapsed) = (self.config(), self.elapsed());
                self.on_engine(move |e, w| figures::stats(e, w, &config, elapsed))
            }
            Request::Why { offset } => {
                let (config, offset) = (self.config(), *offset);
                self.on_engine(move |e, w| figures::why(e, w.now(), &config, offset))?
            }
            Request::Set { values, words } if words.is_empty() => self.set(values),
            Request::Set { values, words } => self.set_words(values, words),
            Request::Policy { policy } => self.set_policy(policy),
            Request::Stop => {
                let (outcome, wait) = mpsc::channel();
                let ends = self
                    .ends
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone();
                let gone = "the volume is closing already";
                ends.send(End::Asked(outcome))
                    .map_err(|_| gone.to_owned())?;
                wait.recv()
                    .map_err(|_| gone.to_owned())?
                    .map(|()| json!({"volume": self.volume, "state": "stopped"}))
            }
            Request::Record | Request::Events { .. } => Err("goes on after its answer".into()),
        }
    }

    fn record(&self) -> Result<Receiver<Entry>, String> {
        self.tap.listen()
    }

    fn events(&self) -> Result<Recording, String> {
        self.handle.record_events().map_err(|e| e.to_string())
    }

    fn end_events(&self) {
        self.handle.end_events();
    }
}

#[cfg(test)]
mod tests {
    use super::with_param;

    #[test]
    fn parameters_are_added_or_replaced() {
        assert_eq!(with_param("greendm", "PT", 2.0), "greendm,PT=2");
        assert_eq!(
            with_param("greendm,PT=2,TW=30", "PT", 3.0),
            "greendm,TW=30,PT=3"
        );
    }
}
