//! Shadows of a served volume, and the answer of `what-if`.
//!
//! ```text
//!  tap: every request ─► is an extent in the sample? ─► queue ─► thread: shadows play ─┬─► what-if
//!                                                       engine: what it measures ──────┘
//! ```
//! A request never waits for this: it costs a hash for each of its extents, and one that finds the queue full is counted as lost. Nothing
//! here is told to the engine. When touches are lost, or are more than `TOUCHES_MOST` a second, a sample of half the rate takes over.

mod answer;
mod times;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::shadow::{Begin, STRATUM_LEAST, Sampler, Seen, Shadows, Shape, Touch};
use isotherm_classify::ClassMap;
use isotherm_core::load::Loads;
use isotherm_core::{MemberId, Nanos, TierId, World};
use isotherm_live::config::build_policy;
use isotherm_live::port::IoRequest;
use serde::{Deserialize, Serialize};

use crate::entry::EntryOp;
use crate::live::Live;

/// Touches that wait for the shadows, 512 KiB.
const QUEUE: usize = 1 << 14;
/// Interval at which the shadows play what has arrived.
const EACH: Duration = Duration::from_millis(500);
/// Most touches a second, over [`MEASURED`]: 2.8 % of a core with the 18 µs that each took at most on a busy machine.
const TOUCHES_MOST: u64 = 1536;
/// See [`TOUCHES_MOST`].
const MEASURED: Nanos = Nanos::from_secs(60);

/// A size of flash that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FastAsk {
    /// Bytes.
    pub bytes: u64,
    /// Whether they come to those of today.
    pub more: bool,
}

/// The shadows of a served volume: what requests, the thread and questions share.
pub struct Shadowing {
    begun: Instant,
    extent_shift: u32,
    /// log2 of the size of strata; 0: nothing is sampled.
    stratum: AtomicU32,
    /// Accesses to extents, sampled or not.
    seen: AtomicU64,
    lost: AtomicBool,
    queue: SyncSender<Touch>,
    state: Mutex<State>,
}

struct State {
    touches: Receiver<Touch>,
    /// The shadows, or why there are none.
    watched: Result<Watched, String>,
    /// log2 of the least size of strata: it grows with the load.
    stratum: u32,
}

struct Watched {
    set: Shadows,
    facts: Facts,
    began: Nanos,
    /// What the volume had measured at the marks of the set.
    marks: [Measured; 2],
    /// Begin of a measurement of the load, and the touches until then.
    load: (Nanos, u64),
}

/// What the shadows of a volume depend on. When it changes, they begin anew.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    /// The engine: its counts begin with it.
    engine: u64,
    shape: Shape,
    tiers: u8,
    policy: String,
}

/// What a volume has measured since it was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    accesses: u64,
    hits: u64,
    reads: u64,
    writes: u64,
    latency: Nanos,
    /// Recent times of a read and a write on flash, and device time of an operation on the disks.
    fast: (Nanos, Nanos),
    service: Nanos,
}

impl Shadowing {
    /// Shadows of a volume with extents of 2^`extent_shift` bytes.
    pub fn new(extent_shift: u32) -> Arc<Shadowing> {
        let (queue, touches) = sync_channel(QUEUE);
        Arc::new(Shadowing {
            begun: Instant::now(),
            extent_shift,
            stratum: AtomicU32::new(0),
            seen: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            queue,
            state: Mutex::new(State {
                touches,
                watched: Err("the shadows of this volume have not begun yet".to_owned()),
                stratum: STRATUM_LEAST,
            }),
        })
    }

    fn now(&self) -> Nanos {
        Nanos(self.begun.elapsed().as_nanos() as u64)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a request. If it carries no class, `classes` is asked.
    #[inline]
    pub fn saw(&self, request: &IoRequest, classes: &ClassMap) {
        let stratum = self.stratum.load(Ordering::Relaxed);
        let op = EntryOp::of(request.op);
        if stratum == 0 || request.len == 0 || !matches!(op, EntryOp::Read | EntryOp::Write) {
            return;
        }
        let (offset, bytes) = (request.offset, request.len);
        let seen = Seen {
            offset,
            bytes,
            class: request.class & 63,
            write: op == EntryOp::Write,
        };
        let sampler = Sampler::new(self.extent_shift, stratum);
        let extents = sampler.each(
            seen,
            || self.now(),
            |mut touch| {
                if touch.class == 0 {
                    touch.class = classes.of(offset, bytes).mark.class();
                }
                if self.queue.try_send(touch).is_err() {
                    self.lost.store(true, Ordering::Relaxed);
                }
            },
        );
        self.seen.fetch_add(u64::from(extents), Ordering::Relaxed);
    }
}

/// Runs the shadows of a volume until the result is dropped. Nobody waits for the thread to end.
///
/// # Errors
/// There is no thread.
pub fn start(live: &Arc<Live>) -> Result<Sender<()>, String> {
    let geometry = live.on_engine(|e, _| e.space().geo.extent_shift)?;
    let shadowing = Shadowing::new(geometry);
    live.tap.watch(Arc::clone(&shadowing));
    let (until, ended) = channel();
    let live = Arc::clone(live);
    let run = move || {
        // Without shadows, whether there can be some is looked at once a minute.
        let mut looks = (0..120).map(|n| n == 0).cycle();
        while live.shadow(&shadowing, looks.next() == Some(true)).is_ok() {
            if ended.recv_timeout(EACH) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        shadowing.stratum.store(0, Ordering::Relaxed);
    };
    let thread = std::thread::Builder::new().name("shadows".into());
    (thread.spawn(run)).map_err(|e| format!("no thread for the shadows of the volume: {e}"))?;
    Ok(until)
}

impl State {
    /// Plays what has arrived. Returns whether there was anything.
    fn catch_up(&mut self) -> bool {
        let mut any = false;
        // Not more than the queue holds, so that it ends under any load.
        for touch in self.touches.try_iter().take(QUEUE) {
            any = true;
            if let Ok(w) = &mut self.watched {
                w.set.play(&touch);
            }
        }
        any
    }
    /// Begins anew.
    fn begin(&mut self, shared: &Shadowing, facts: Facts, measured: Measured, loads: &Loads) {
        let now = shared.now();
        let made = if facts.tiers == 2 {
            let begin = Begin {
                stratum_shift: self.stratum,
                now,
                loads: Some(loads),
            };
            Shadows::new(facts.shape, &facts.policy, &build_policy, begin).map_err(|e| e.0)
        } else {
            Err("what-if knows volumes of two tiers only".to_owned())
        };
        let sampled = made.as_ref().map_or(0, |s| s.sampler().stratum_shift());
        self.watched = made.map(|mut set| {
            let seen = shared.seen.load(Ordering::Relaxed);
            set.mark(seen);
            set.mark(seen);
            Watched {
                set,
                facts,
                began: now,
                marks: [measured; 2],
                load: (now, 0),
            }
        });
        shared.lost.store(false, Ordering::Relaxed);
        shared.stratum.store(sampled, Ordering::Relaxed);
    }
}

impl Watched {
    /// Whether the sample is too large for the load.
    fn is_overloaded(&mut self, now: Nanos) -> bool {
        let (since, touches) = self.load;
        let (took, sampled) = (now.since(since), self.set.sampled());
        let most = u128::from(TOUCHES_MOST) * u128::from(took.0.max(MEASURED.0)) / 1_000_000_000;
        if took >= MEASURED {
            self.load = (now, sampled);
        }
        u128::from(sampled - touches) > most
    }
}

impl Live {
    /// Lets the shadows play what has arrived, and makes marks. Begins anew if the volume has changed; `look`: see whether it has even
    /// if nothing has arrived. An error: the volume is closing.
    fn shadow(&self, shared: &Shadowing, look: bool) -> Result<(), String> {
        let mut state = shared.state();
        let any = state.catch_up();
        if !any && !look {
            return Ok(());
        }
        let (facts, measured, loads) = self.facts()?;
        let lost = shared.lost.swap(false, Ordering::Relaxed);
        let now = shared.now();
        if let Ok(w) = &mut state.watched
            && w.facts == facts
        {
            w.set.measured_by(&loads);
            if w.set.is_mark_due() {
                w.set.mark(shared.seen.load(Ordering::Relaxed));
                w.marks = [w.marks[1], measured];
            }
            if !lost && !w.is_overloaded(now) {
                return Ok(());
            }
            let sampler = w.set.sampler();
            state.stratum = sampler.stratum_shift() + 1;
        }
        state.begin(shared, facts, measured, &loads);
        Ok(())
    }

    fn facts(&self) -> Result<(Facts, Measured, Loads), String> {
        let config = self.config();
        let has_flash = config.members.iter().any(|m| m.tier == 0 && !m.removed);
        self.on_engine(move |e, w| {
            let (geo, c, now) = (&e.space().geo, e.counters(), w.now());
            let latencies = e.space().loads.latencies(TierId(0));
            let members = (0..geo.members.len() as u8).map(MemberId);
            let disks = members.filter_map(|m| e.space().loads.member(m, now));
            let disks = disks.filter(|m| m.tier == geo.slowest() && m.service.0 > 0);
            let (n, sum) = disks.fold((0, 0), |(n, sum), m| (n + 1, sum + m.service.0));
            let measured = Measured {
                accesses: c.accesses,
                hits: if has_flash { c.tier_hits[0] } else { 0 },
                reads: c.read_latency.count(),
                writes: c.write_latency.count(),
                latency: c.read_latency.sum() + c.write_latency.sum(),
                fast: (latencies.read, latencies.write),
                service: Nanos(sum.checked_div(n).unwrap_or(0)),
            };
            let fast = geo.tier_slots(TierId(0)).len() as u32;
            let shape = Shape {
                extents: geo.extents,
                extent_shift: geo.extent_shift,
                block_shift: geo.block_shift,
                fast: if has_flash { fast } else { 0 },
            };
            let facts = Facts {
                engine: e.id(),
                shape,
                tiers: geo.tiers(),
                policy: config.policy,
            };
            (facts, measured, e.space().loads.clone())
        })
    }
}
