//! Polls the volumes, once for all pages, and keeps a curve for each.
//!
//! Each volume has a thread, so that a volume that hangs does not delay another. The figures go to all listeners; the last ones and the
//! curve are kept for later listeners.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::{Listed, Source};

/// Interval between two polls while a page watches.
const WATCHED: Duration = Duration::from_secs(1);
/// Interval between two polls while no page watches.
const ALONE: Duration = Duration::from_secs(5);
/// Points of a curve: half an hour while watched, two and a half hours otherwise.
const POINTS: usize = 1800;
/// Interval between two listings of the volumes.
const LISTING: Duration = Duration::from_secs(5);
/// Number of updates by which a slow page may lag before it misses some.
const LAG: usize = 16;
/// Most volumes that are followed.
const VOLUMES_MAX: usize = 64;

/// A message to a page.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// The type of event: `frame` or `gone`.
    pub event: &'static str,
    /// JSON.
    pub data: Arc<str>,
}

/// One volume.
pub(crate) struct Followed {
    source: Arc<dyn Source>,
    id: String,
    watchers: AtomicUsize,
    over: AtomicBool,
    kept: Mutex<Kept>,
    /// Signals that a watcher came, so that the volume is polled at once.
    came: Condvar,
    tell: broadcast::Sender<Told>,
}

#[derive(Default)]
struct Kept {
    points: VecDeque<Value>,
    last: Option<Told>,
    hurry: bool,
}

/// A watcher. While a volume has any, it is polled every second.
pub(crate) struct Watcher {
    of: Arc<Followed>,
    pub told: broadcast::Receiver<Told>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.of.watchers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Followed {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(source: Arc<dyn Source>, id: &str) -> Option<Arc<Followed>> {
        let followed = Arc::new(Followed {
            source,
            id: id.to_owned(),
            watchers: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            kept: Mutex::default(),
            came: Condvar::new(),
            tell: broadcast::channel(LAG).0,
        });
        let for_thread = Arc::clone(&followed);
        let started = std::thread::Builder::new()
            .name("web-follow".into())
            .spawn(move || for_thread.run());
        started.is_ok().then_some(followed)
    }

    fn run(&self) {
        while !self.over.load(Ordering::SeqCst) {
            self.note(self.source.look(&self.id));
            let every = if self.watchers.load(Ordering::SeqCst) > 0 {
                WATCHED
            } else {
                ALONE
            };
            let kept = self.kept();
            let (mut kept, _) = self
                .came
                .wait_timeout_while(kept, every, |k| !k.hurry)
                .unwrap_or_else(PoisonError::into_inner);
            kept.hurry = false;
        }
    }

    fn note(&self, seen: Result<Value, String>) {
        let (event, data, point) = match seen {
            Ok(frame) => {
                let point = frame.get("point").filter(|p| !p.is_null()).cloned();
                ("frame", frame.to_string(), point)
            }
            Err(why) => ("gone", json!({"why": why}).to_string(), None),
        };
        let told = Told {
            event,
            data: data.into(),
        };
        let mut kept = self.kept();
        if let Some(point) = point {
            while kept.points.len() >= POINTS {
                kept.points.pop_front();
            }
            kept.points.push_back(point);
        }
        kept.last = Some(told.clone());
        // This is under the lock: a watcher that comes meanwhile gets the message either from here or as the last one.
        let _ = self.tell.send(told); // an error means that there is no listener
    }

    /// The curve so far, the last message, and a watcher for the messages to come.
    pub(crate) fn watch(self: &Arc<Followed>) -> (Value, Option<Told>, Watcher) {
        let mut kept = self.kept();
        let told = self.tell.subscribe();
        if self.watchers.fetch_add(1, Ordering::SeqCst) == 0 {
            kept.hurry = true;
            self.came.notify_all();
        }
        let history = Value::Array(kept.points.iter().cloned().collect());
        let of = Arc::clone(self);
        (history, kept.last.clone(), Watcher { of, told })
    }

    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.kept().hurry = true;
        self.came.notify_all();
    }
}

/// All volumes of a source.
pub(crate) struct All {
    pub source: Arc<dyn Source>,
    followed: Mutex<BTreeMap<String, Arc<Followed>>>,
    listed: Mutex<Vec<Listed>>,
    over: Mutex<bool>,
    ended: Condvar,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl All {
    /// Lists the volumes, and continues to do so on a thread of its own.
    pub(crate) fn start(source: Arc<dyn Source>) -> Result<Arc<All>, String> {
        let all = Arc::new(All {
            source,
            followed: Mutex::default(),
            listed: Mutex::default(),
            over: Mutex::new(false),
            ended: Condvar::new(),
        });
        all.list();
        let for_thread = Arc::clone(&all);
        std::thread::Builder::new()
            .name("web-list".into())
            .spawn(move || {
                while for_thread.wait() {
                    for_thread.list();
                }
            })
            .map_err(|e| format!("no thread for the web view: {}", isotherm_paths::reason(&e)))?;
        Ok(all)
    }

    /// Waits until it is time to list again. Returns false at the end.
    fn wait(&self) -> bool {
        let over = lock(&self.over);
        let waited = self.ended.wait_timeout_while(over, LISTING, |o| !*o);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn list(&self) {
        let listed = self.source.volumes();
        let mut followed = lock(&self.followed);
        for v in listed.iter().filter(|v| v.served) {
            if !followed.contains_key(&v.id)
                && followed.len() < VOLUMES_MAX
                && let Some(one) = Followed::start(Arc::clone(&self.source), &v.id)
            {
                followed.insert(v.id.clone(), one);
            }
        }
        // A volume that is no longer served is followed as long as it has watchers, because it may come back.
        followed.retain(|id, f| {
            let keep = listed.iter().any(|v| v.served && v.id == *id)
                || f.watchers.load(Ordering::SeqCst) > 0;
            if !keep {
                f.end();
            }
            keep
        });
        drop(followed);
        *lock(&self.listed) = listed;
    }

    pub(crate) fn listed(&self) -> Vec<Listed> {
        lock(&self.listed).clone()
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Followed>> {
        lock(&self.followed).get(id).cloned()
    }

    /// Tells all threads to end. It does not wait for them, because a volume may hang.
    pub(crate) fn end(&self) {
        *lock(&self.over) = true;
        self.ended.notify_all();
        for f in lock(&self.followed).values() {
            f.end();
        }
    }
}
