//! The state of a served volume that the control socket can reach.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use isotherm_answers::{
    Device, Look, Member, Recovery, Served, Set, State, Stats, Status, json as answer,
};
use isotherm_core::engine::is_knob;
use isotherm_core::{MemberId, Nanos, World};
use isotherm_live::port::Port;
use isotherm_live::recorder::Recording;
use isotherm_live::scrub::How;
use isotherm_live::{Handle, VolumeConfig};
use isotherm_words::policy_spec::param_words;
use isotherm_words::qos;
use serde::Serialize;
use serde_json::Value;

use crate::data_check::{DataChecks, Running};
use crate::drives::Drives;
use crate::entry::Entry;
use crate::fronts::Fronts;
use crate::metrics::{Latency, Snapshot};
use crate::server::Service;
use crate::settings::{self, READ_ONLY, keep_value, with_param, with_words};
use crate::spare::Spares;
use crate::tap::Tap;
use crate::{ClassesAsk, Request, atlas, classes, figures};

/// Receives the outcome of a stop.
pub type StopReply = Sender<Result<(), String>>;

/// The reason why serving ends.
pub enum End {
    /// The name of the signal.
    Signal(&'static str),
    /// A client asked for it and waits for the outcome.
    Asked(StopReply),
}

/// The state that the control socket can reach.
pub struct Live {
    /// The engine.
    pub handle: Handle,
    /// Every request passes through it.
    pub tap: Arc<Tap>,
    /// The path of the volume without an extension.
    pub volume: PathBuf,
    /// The path of its description.
    pub file: PathBuf,
    /// The present content of the description.
    pub config: Mutex<VolumeConfig>,
    /// Held while settings change, so that there is one change at a time.
    pub settings: Mutex<()>,
    /// The time at which serving began.
    pub begun: Instant,
    /// The active front ends.
    pub fronts: Fronts,
    /// Whether only reads are served.
    pub read_only: bool,
    /// Members that are absent.
    pub missing: Mutex<Vec<u8>>,
    /// The findings of opening and recovery.
    pub recovery: Recovery,
    /// The limits of the members' lives.
    pub limits: Mutex<figures::Limits>,
    /// Notifies the thread that ends serving.
    pub ends: Mutex<Sender<End>>,
    /// Checks of the data while it is served.
    pub checks: Arc<DataChecks>,
    /// What the drives under the members report.
    pub drives: Drives,
    /// The block device, once it exists.
    pub device: Arc<Mutex<Option<Device>>>,
    /// Whether the flash is being taken out.
    pub removes_flash: AtomicBool,
    /// The use of spares.
    pub spares: Spares,
    /// When the end of serving began.
    pub closing: OnceLock<SystemTime>,
}

impl Live {
    /// The present content of the description.
    pub fn config(&self) -> VolumeConfig {
        self.config
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// For each member in order, whether it is in standby.
    fn asleep(&self) -> Result<Vec<bool>, String> {
        self.on_engine(|e, _| {
            let members = e.space().geo.members.len() as u8;
            (0..members).map(|m| e.is_asleep(MemberId(m))).collect()
        })
    }

    /// The figures for a scrape.
    pub fn snapshot(&self) -> Result<Snapshot, String> {
        let latency = self.on_engine(|e, _| {
            let c = e.counters();
            [
                ("read", &c.read_latency),
                ("write", &c.write_latency),
                ("flush", &c.flush_latency),
            ]
            .map(|(op, h)| Latency::of(op, h))
            .to_vec()
        })?;
        Ok(Snapshot {
            stats: self.stats(true)?,
            health: self.health(),
            silent_s: self.silent_s(),
            degraded: !self.missing().is_empty(),
            read_only: self.read_only,
            asleep: self.asleep()?,
            latency,
        })
    }

    pub(crate) fn setting(&self) -> MutexGuard<'_, ()> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed(&self) -> Nanos {
        Nanos(self.begun.elapsed().as_nanos() as u64)
    }

    pub(crate) fn on_engine<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut isotherm_live::recorder::Driver, &mut isotherm_live::world::UringWorld) -> R
        + Send
        + 'static,
    ) -> Result<R, String> {
        self.handle.call(f).ok_or_else(|| self.closing_words())
    }

    /// All figures. The content of the fastest tier by class is included only with `contents`, because it needs a walk over the tier.
    fn stats(&self, contents: bool) -> Result<Stats, String> {
        // The lock ends here: the question for the contents, below, waits for the engine.
        let front_ends = self.fronts.lock().figures();
        let beside = figures::Beside {
            config: self.config(),
            elapsed: self.elapsed(),
            failure: figures::failure(&self.handle),
            health: self.health().answer(),
            wear_limit_bytes: self.limits().written,
            front_ends,
            data_check: self.checks.figures(),
            fast: self.fast(contents)?,
            sources: classes::sources_on(&self.handle),
        };
        let mut stats = self.on_engine(move |e, w| figures::stats(e, w, beside))?;
        for (place, member) in stats.members.iter_mut().enumerate() {
            member.drives = self.drives.of((place, Path::new(&member.path)));
        }
        Ok(stats)
    }

    fn fast(&self, contents: bool) -> Result<Option<classes::Contents>, String> {
        if contents {
            classes::quick_contents(&self.handle)
        } else {
            Ok(None)
        }
    }

    fn status(&self, contents: bool) -> Result<Status, String> {
        self.refuse_if_closing()?;
        let config = self.config();
        let (geo, mapped, params, copies, qos) = self.on_engine(|e, w| {
            let (mapped, geo) = (e.space().map.mapped(), e.space().geo.clone());
            let (params, copies) = (figures::params(e), figures::copies(e, w.now()));
            (geo, mapped, params, copies, classes::promised(e, w.now()))
        })?;
        let (missing, failure) = (self.missing(), figures::failure(&self.handle));
        let fast = self.fast(contents)?;
        let device = self.device.lock();
        let device = device.unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Status {
            volume: self.volume.to_string_lossy().into_owned(),
            name: config.name.clone(),
            uuid: config.uuid.clone(),
            state: match &failure {
                Some(_) => State::Failed,
                None => State::Serving,
            },
            volume_bytes: geo.volume_bytes(),
            extent_bytes: config.extent.0,
            policy: config.policy.clone(),
            paced: config.members.iter().any(|m| m.paced.is_some()),
            members: self.members(&config)?,
            failure,
            mapped_extents: mapped,
            degraded: !missing.is_empty(),
            missing_members: missing,
            lost: figures::listed(&self.handle.listed()),
            data_check: self.checks.figures(),
            store: crate::store::of(&self.volume),
            was_clean: None,
            served: Some(Served {
                health: self.health().answer(),
                read_only: self.read_only,
                block_bytes: self.handle.block_bytes(),
                copies,
                params,
                fast_bytes_by_class: fast.as_ref().map(by_name),
                mixed_fast_share: fast.and_then(|f| f.mixed_share()),
                qos,
                replacing: self.replacing(),
                front_ends: self.fronts.lock().names(),
                pid: std::process::id(),
                program: crate::PROGRAM.to_owned(),
                elapsed_s: self.elapsed().as_secs_f64(),
                recovery: self.recovery.clone(),
                device,
            }),
        })
    }

    /// The members with the standby state of each.
    fn members(&self, config: &VolumeConfig) -> Result<Vec<Member>, String> {
        let elapsed = self.elapsed();
        let stops = self.limits().start_stops;
        let (sleep, sizes) = self.on_engine(move |e, w| {
            let stops = |m| stops.get(usize::from(m)).copied().flatten();
            let one = |m| {
                let sleep = figures::sleep(e, w.now(), elapsed, m, stops(m));
                (e.is_asleep(MemberId(m)), sleep)
            };
            let sleep = (0..e.space().geo.members.len() as u8).map(one);
            (sleep.collect::<Vec<_>>(), w.member_bytes())
        })?;
        let mut members = settings::members(config, &sizes);
        for (member, (asleep, sleep)) in members.iter_mut().zip(sleep) {
            (member.asleep, member.sleep) = (Some(asleep), Some(sleep));
        }
        for (place, member) in members.iter_mut().enumerate() {
            member.drives = self.drives.of((place, Path::new(&member.path)));
        }
        Ok(members)
    }

    /// Sets numbers, all or none.
    fn set(&self, values: &[(String, f64)]) -> Result<Set, String> {
        let _one = self.setting();
        if values.iter().any(|(k, v)| k == "kept_writes" && *v == 0.0) {
            let outliving = self.fronts.lock().outliving();
            if !outliving.is_empty() {
                return Err(format!(
                    "kept_writes: users of {} go on after a crash of the server without hearing of it, so it stays on",
                    outliving.join(" and ")
                ));
            }
        }
        let wanted = values.to_vec();
        let (outcome, params, name) = self.on_engine(move |engine, world| {
            let now = world.now();
            let before = engine.knobs();
            let mut outcome = Ok(());
            for (key, value) in &wanted {
                outcome = engine.set(now, key, *value).map_err(|e| (key.clone(), e));
                if outcome.is_err() {
                    // All or none: values that were already set are restored. They were accepted before.
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
        Ok(Set {
            policy: None,
            params,
            copies: None,
        })
    }

    /// Sets names, and numbers with them, all or none. A name may change the nature of a policy (a write mode, a rule), so the policy is
    /// built anew and takes over as after `policy=`. Recordings and the next start need no more than its description.
    fn set_words(
        &self,
        values: &[(String, f64)],
        words: &[(String, String)],
    ) -> Result<Set, String> {
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
                    let _ = engine.set(now, k, *v); // this value was accepted before
                }
            }
            outcome.map(|()| Set {
                policy: Some(told),
                params: figures::params(engine),
                copies: Some(figures::copies(engine, now)),
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

    /// Makes promises to classes, and keeps them for the next start.
    fn promise(&self, rows: &[String], anew: bool) -> Result<(), String> {
        let _one = self.setting();
        let before = if anew { Vec::new() } else { self.config().qos };
        let spec = qos::spec(before.iter().chain(rows).map(String::as_str))?;
        let items = qos::items(&spec);
        self.on_engine(move |engine, world| engine.promise(world.now(), spec))?;
        self.keep_config(|config| config.qos = items)
    }

    fn classes(&self, what: &ClassesAsk) -> Result<Value, String> {
        match what {
            ClassesAsk::Show => done(classes::show(&self.handle)),
            ClassesAsk::Say {
                source,
                anew,
                ranges,
            } => done(classes::register(&self.handle, source, *anew, ranges)),
            ClassesAsk::Ranges { from } => Ok(answer(&classes::ranges(&self.handle, *from))),
            ClassesAsk::Promise { rows, anew } => done(self.promise(rows, *anew)),
            ClassesAsk::Again => {
                let looked = self.handle.classes().examine(&self.handle, true);
                looked.map_err(|_| "the volume is closing".to_owned())?;
                done(classes::show(&self.handle))
            }
            ClassesAsk::Switch { source, on } => {
                let _one = self.setting();
                classes::switch(&self.handle, source, *on)?;
                done(self.keep_config(|config| {
                    // All but guesses are used unless they are switched off.
                    let (list, named) = if source == "guess" {
                        (&mut config.io.classes_on, *on)
                    } else {
                        (&mut config.io.classes_off, !on)
                    };
                    list.retain(|s| s != source);
                    if named {
                        list.push(source.clone());
                    }
                }))
            }
        }
    }

    /// Writes changed parameters to the description, so that they hold after the next start.
    fn keep(&self, values: &[(String, f64)]) -> Result<(), String> {
        self.keep_config(|config| {
            for (key, value) in values {
                keep_value(config, key, *value);
            }
        })
    }

    pub(crate) fn keep_config(&self, change: impl FnOnce(&mut VolumeConfig)) -> Result<(), String> {
        self.try_keep(change)
            .map_err(|e| format!("set for now, but not kept for the next start: {e}"))
    }

    /// Changes the description, in memory and on disk or not at all.
    pub(crate) fn try_keep(
        &self,
        change: impl FnOnce(&mut VolumeConfig),
    ) -> Result<(), isotherm_live::Error> {
        let mut held = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let mut config = held.clone();
        change(&mut config);
        config.save(&self.file)?;
        *held = config;
        Ok(())
    }
}

/// The content of the fastest tier, by the names of classes.
fn by_name(fast: &classes::Contents) -> BTreeMap<String, u64> {
    let held = (0u8..).zip(fast.bytes).filter(|(_, n)| *n > 0);
    held.map(|(c, n)| (isotherm_classify::classes::name(c), n))
        .collect()
}

/// What was done, as the answer to its request.
fn done<T: Serialize>(outcome: Result<T, String>) -> Result<Value, String> {
    outcome.map(|what| answer(&what))
}

impl Service for Live {
    fn answer(&self, request: &Request) -> Result<Value, String> {
        match request {
            Request::Status => done(self.status(true)),
            Request::Stats => done(self.stats(true)),
            Request::Look => {
                let (stats, status) = (self.stats(false)?, self.status(false)?);
                Ok(answer(&Look { stats, status }))
            }
            Request::Why { offset } => {
                let (config, offset) = (self.config(), *offset);
                let why =
                    self.on_engine(move |e, w| crate::why::why(e, w.now(), &config, offset))?;
                done(why)
            }
            Request::WhatIf { fast, policy } => done(self.what_if(*fast, policy.as_deref())),
            Request::Map { from, to, cells } => done(atlas::map(&self.handle, *from, *to, *cells)),
            Request::Moves => done(self.on_engine(|e, w| atlas::moves(e, w.now()))),
            Request::Set { .. } | Request::Policy { .. } if self.read_only => {
                Err(READ_ONLY.to_owned())
            }
            Request::Set { values, words } if words.is_empty() => done(self.set(values)),
            Request::Set { values, words } => done(self.set_words(values, words)),
            Request::Policy { policy } => done(self.set_policy(policy)),
            Request::Grow => done(self.grow()),
            Request::Replace(wanted) => done(self.replace(wanted)),
            Request::CancelReplace => done(self.cancel_replace()),
            Request::Clean => done(self.clean()),
            Request::Warm { what } => done(self.warm(what)),
            Request::RemoveFlash => done(self.remove_flash()),
            Request::AddFlash(wanted) => done(self.add_flash(wanted)),
            Request::SetSpare { spare } => done(self.set_spare(spare.as_deref())),
            Request::RemoveOneFlash { place } => done(self.remove_one_flash(*place)),
            Request::ResizeFlash => done(self.resize_flash()),
            Request::Stop => done(self.stop()),
            Request::Classes { what } => self.classes(what),
            Request::Record | Request::Events { .. } | Request::Check { .. } => {
                Err("goes on after its answer".into())
            }
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

    fn check_data(&self, how: How) -> Result<Running, String> {
        self.checks.start(&self.handle, how)
    }
}
