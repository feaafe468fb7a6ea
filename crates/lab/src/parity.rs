//! Replays a recorded live run: the same engine with the same calls must make the same decisions, bit for bit.
//!
//! ```text
//! events file ─ image ─► store::open ─► Engine::new ─┐
//!             ─ calls, with their times ─────────────┴─► effects ─ equal? ─ recorded effects
//! ```
//! Effects are compared as values, and metadata writes by the hash of their bytes. After the last call, the counters and the time of the
//! next wake-up are compared as well, because effects do not show them.

use crate::policy_spec::PolicySpec;
use isotherm_core::engine::WARM_RANGES_MAX;
use isotherm_core::geometry::Kind;
use isotherm_core::policy::Policy;
use isotherm_core::qos::Spec;
use isotherm_core::store::open::Loss;
use isotherm_core::store::{self, Opened, Superblock};
use isotherm_core::{BufRef, Effect, Engine, Nanos, QUIET, RequestOp};
use isotherm_events::{
    CLEAN, Call, Decision, End, EventsError, Reader, Standing, WARM, meta_hash, warm_ranges,
};
use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct Parity {
    /// Calls replayed.
    pub events: u64,
    /// Requests among them.
    pub requests: u64,
    /// Decisions compared.
    pub decisions: u64,
    /// Engine time from the first to the last call.
    pub span: Nanos,
    /// The first difference.
    pub difference: Option<Difference>,
    /// The end of the recording; `None` if the replay stopped at a difference.
    pub end: Option<End>,
}

/// The first point at which recording and replay differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Number of the event, from 0; the number after the last event if only counters differ.
    pub event: u64,
    /// Engine time.
    pub now: Nanos,
    /// The call; `None` after the last event.
    pub call: Option<Call>,
    /// The difference in one line.
    pub what: String,
    /// The recorded decisions.
    pub recorded: Vec<Decision>,
    /// The replayed decisions.
    pub replayed: Vec<Decision>,
}

/// The reason why a recording cannot be replayed.
#[derive(Debug)]
pub enum ParityError {
    /// The file has an error. The number is that of the events before it, which were equal.
    File(EventsError, u64),
    /// The state from which it starts cannot be opened.
    Start(String),
}

impl fmt::Display for ParityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParityError::File(e, 0) => write!(f, "{e}"),
            ParityError::File(e, n) => write!(f, "{e}; the {n} events before that are equal"),
            ParityError::Start(what) => {
                write!(
                    f,
                    "what the recording starts from cannot be opened ({what}): record again"
                )
            }
        }
    }
}

impl std::error::Error for ParityError {}

/// The promises of a call.
fn promises(text: &str) -> Result<Spec, String> {
    isotherm_words::qos::spec(text.split(';').filter(|row| !row.is_empty()))
}

fn build_policy(text: &str) -> Result<Box<dyn Policy>, String> {
    text.parse::<PolicySpec>()?.build()
}

/// The volume in its state at the beginning of the recording. It takes the image out of the reader.
pub(crate) fn opened<R: Read>(reader: &mut Reader<R>) -> Result<Opened, String> {
    let mut image = reader.take_image();
    let origin = reader.origin();
    let mut found = Vec::new();
    for (i, sb) in origin.superblocks.iter().enumerate() {
        found.push(match sb {
            None => None,
            Some(b) => Some(
                Superblock::decode(b).map_err(|e| format!("superblock of member {i}: {e:?}"))?,
            ),
        });
    }
    // As the server opened it: what was lost in a cache volume is on its lists.
    let is_cache = found.iter().flatten().any(|sb| sb.kind == Kind::Cache);
    let loss = if is_cache {
        Loss::Listed
    } else {
        Loss::Accepted
    };
    let mode = match origin.epoch {
        Some(epoch) if found.iter().any(Option::is_none) => {
            store::open::Mode::Degraded { epoch, loss }
        }
        Some(epoch) => store::open::Mode::ReadWrite { epoch },
        None => store::open::Mode::ReadOnly,
    };
    let mut opened = store::open(&mut image, &found, mode).map_err(|e| e.to_string())?;
    opened.time_base = origin.time_base;
    Ok(opened)
}

/// The engine in its state at the beginning of the recording.
fn start<R: Read>(reader: &mut Reader<R>) -> Result<Engine, String> {
    let opened = opened(reader)?;
    let origin = reader.origin();
    let policy = build_policy(&origin.policy)?;
    Ok(Engine::new(opened, policy, origin.params.clone()))
}

/// The knowledge of the world below the engine. With it, a recording that was tampered with cannot make the engine's assertions fail.
#[derive(Default)]
struct Flights {
    /// Operation → bytes.
    ops: Vec<Option<u32>>,
    tags: HashSet<u32>,
}

impl Flights {
    fn impossible(&mut self, call: &Call) -> Option<&'static str> {
        match call {
            Call::Submit(r) if !self.tags.insert(r.tag.0) => {
                Some("the request's tag is in use by another request")
            }
            Call::Policy { text } if build_policy(text).is_err() => {
                Some("this program has no such policy")
            }
            Call::Promise { text } if promises(text).is_err() => {
                Some("this program knows no such promises to classes")
            }
            Call::Submit(r) if r.class & !QUIET > 63 => Some("the request's class is above 63"),
            Call::Reclassify { class, runs, .. }
                if *class > 63 || runs.iter().any(|(_, class)| *class > 63) =>
            {
                Some("a class is above 63")
            }
            Call::Complete { id, result } => {
                let op = self.ops.get_mut(id.0 as usize).and_then(Option::take);
                match (op, result) {
                    (None, _) => Some("the replay has no such operation in flight"),
                    (Some(len), Ok(n)) if *n > len => {
                        Some("more bytes than the operation asked for")
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn follow(&mut self, effects: &[Effect]) {
        for e in effects {
            match e {
                Effect::Start(op) => {
                    let i = op.id.0 as usize;
                    if self.ops.len() <= i {
                        self.ops.resize(i + 1, None);
                    }
                    self.ops[i] = Some(op.len);
                }
                Effect::Reply { tag, .. } => {
                    self.tags.remove(&tag.0);
                }
                _ => {}
            }
        }
    }
}

/// Replays a recorded run and compares it, up to the first difference.
///
/// # Errors
/// The file is damaged or cut, or the state from which it starts cannot be opened.
pub fn replay<R: Read>(mut reader: Reader<R>) -> Result<Parity, ParityError> {
    let mut engine = start(&mut reader).map_err(ParityError::Start)?;
    let mut out = Vec::new();
    let mut replayed = Vec::new();
    let mut flights = Flights::default();
    let (mut first, mut last) = (None, Nanos(0));
    let mut wanted = Vec::new();
    let mut parity = Parity {
        events: 0,
        requests: 0,
        decisions: 0,
        span: Nanos(0),
        difference: None,
        end: None,
    };
    loop {
        let next = reader.next_call();
        let Some((now, call)) = next.map_err(|e| ParityError::File(e, parity.events))? else {
            break;
        };
        let mut differ = |what: &str, recorded: &[Decision], replayed: &[Decision]| {
            parity.difference = Some(Difference {
                event: parity.events,
                now,
                call: Some(call.clone()),
                what: what.to_owned(),
                recorded: recorded.to_vec(),
                replayed: replayed.to_vec(),
            });
        };
        if let Some(what) = flights.impossible(&call) {
            differ(what, reader.decisions(), &[]);
            return Ok(parity);
        }
        out.clear();
        let all = (&mut out, &mut wanted);
        let told = catch_unwind(AssertUnwindSafe(|| tell(&mut engine, now, &call, all)));
        if told.is_err() {
            differ("the engine panicked", reader.decisions(), &[]);
            return Ok(parity);
        }
        flights.follow(&out);
        replayed.clear();
        replayed.extend(out.iter().map(|e| decision(&engine, e)));
        if replayed != reader.decisions() {
            differ("other decisions", reader.decisions(), &replayed);
            return Ok(parity);
        }
        parity.events += 1;
        parity.requests += u64::from(matches!(call, Call::Submit(r) if r.class & QUIET == 0));
        parity.decisions += replayed.len() as u64;
        last = now;
        parity.span = now.since(*first.get_or_insert(now));
    }
    parity.end = reader.end().cloned();
    let standing = parity.end.as_ref().and_then(|e| e.standing.clone());
    if let Some(recorded) = standing {
        let now = Standing::of(&engine);
        if recorded != now {
            parity.difference = Some(Difference {
                event: parity.events,
                now: last,
                call: None,
                what: format!("other counters at the end: recorded {recorded:?}, replayed {now:?}"),
                recorded: Vec::new(),
                replayed: Vec::new(),
            });
        }
    }
    Ok(parity)
}

/// The next part of what the user wants on flash, which is asked for with the last part.
fn warm(engine: &mut Engine, now: Nanos, (key, value): (&str, f64), wanted: &mut Vec<Range<u32>>) {
    let more = warm_ranges(key).unwrap_or_default();
    // With one more than that, the engine refuses them.
    let room = (WARM_RANGES_MAX + 1).saturating_sub(wanted.len());
    wanted.extend(more.into_iter().take(room));
    if value > 0.0 {
        let _ = engine.warm(now, std::mem::take(wanted));
    }
}

/// Makes a call. `wanted`: the parts so far of what the user wants on flash.
fn tell(
    engine: &mut Engine,
    now: Nanos,
    call: &Call,
    (out, wanted): (&mut Vec<Effect>, &mut Vec<Range<u32>>),
) {
    match call {
        Call::Submit(r) => engine.submit(now, *r, out),
        Call::Complete { id, result } => engine.complete(now, *id, *result, out),
        Call::Tick => engine.tick(now, out),
        Call::Close => engine.close(now, out),
        // If the call was refused in the recording, it is refused now.
        Call::Set { key, .. } if key == CLEAN => drop(engine.clean()),
        Call::Set { key, value } if key.starts_with(WARM) => {
            warm(engine, now, (key, *value), wanted);
        }
        Call::Set { key, value } => drop(engine.set(key, *value)),
        // The name was checked when the call was read.
        Call::Reclassify {
            extent,
            class,
            runs,
        } => engine.reclassify_blocks(now, *extent, *class, runs, out),
        // As above.
        Call::Promise { text } => {
            if let Ok(spec) = promises(text) {
                engine.promise(spec);
            }
        }
        Call::Policy { text } => {
            if let Ok(policy) = build_policy(text) {
                let _ = engine.set_policy(now, policy);
            }
        }
    }
}

fn decision(engine: &Engine, effect: &Effect) -> Decision {
    let meta = match effect {
        Effect::Start(op) if op.buf == BufRef::Meta => meta_hash(engine.meta(op)),
        _ => 0,
    };
    Decision {
        effect: *effect,
        meta,
    }
}

/// A call in words, for messages.
pub fn describe(call: &Call) -> String {
    match call {
        Call::Submit(r) => {
            let op = match r.op {
                RequestOp::Read => "read",
                RequestOp::Write => "write",
                RequestOp::Flush => "flush",
                RequestOp::Discard => "discard",
                RequestOp::WriteZeroes { .. } => "write zeroes",
            };
            let fua = if r.fua { ", FUA" } else { "" };
            format!(
                "request {}: {op} of {} bytes at {}, class {}{fua}",
                r.tag.0, r.len, r.offset, r.class
            )
        }
        Call::Complete { id, result: Ok(n) } => format!("operation {} ended: {n} bytes", id.0),
        Call::Complete { id, result: Err(e) } => format!("operation {} failed: {e:?}", id.0),
        Call::Tick => "tick".into(),
        Call::Close => "close".into(),
        Call::Set { key, .. } if key == CLEAN => "dirty data is asked home".into(),
        Call::Set { key, .. } if key.starts_with(WARM) => "data is wanted on flash".into(),
        Call::Set { key, value } => format!("set {key}={value}"),
        Call::Policy { text } => format!("policy {text}"),
        Call::Promise { text } => format!("promise {text}"),
        Call::Reclassify { extent, class, .. } => {
            format!("extent {} holds class {class}", extent.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::ExtentId;

    /// Policies have tables of 64 classes, so a recording with others must not reach them.
    #[test]
    fn classes_above_63_are_impossible() {
        let told = |class, runs| {
            let extent = ExtentId(0);
            let call = Call::Reclassify {
                extent,
                class,
                runs,
            };
            Flights::default().impossible(&call)
        };
        assert_eq!(told(63, vec![(3, 0), (13, 63)]), None);
        for (class, runs) in [
            (64, vec![]),
            (1, vec![(1, 64)]),
            (1, vec![(1, 0), (1, 255)]),
        ] {
            assert_eq!(told(class, runs), Some("a class is above 63"));
        }
    }
}
