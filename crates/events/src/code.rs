//! Encodes events as bytes (`decode.rs` is the counterpart).
//!
//! Made for the engine's thread: a few stores per number, no allocation, no compression. Times and offsets are written as differences from
//! the previous ones. Each chunk starts the differences anew, so that it can be read by itself.

use crate::numbers::{Cursor, put, put_bytes, put_from};
use crate::tables::{ERRORS, KINDS, OPS};
use isotherm_core::{BufRef, DeviceOp, Effect, ExtentId, IoError, Nanos, OpId, Request};
use twox_hash::XxHash3_64;

/// One call of the engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// A request arrived.
    Submit(Request),
    /// A device operation ended.
    Complete {
        /// The operation that ended.
        id: OpId,
        /// Its result.
        result: Result<u32, IoError>,
    },
    /// Time passed.
    Tick,
    /// No more requests will come.
    Close,
    /// A parameter or knob was set. The engine may have refused it; a replay refuses it in the same way. With the name [`CLEAN`], the user
    /// asked to write home what is dirty; with one that begins with [`super::WARM`], that data is copied to flash.
    Set {
        /// Its name.
        key: String,
        /// The value.
        value: f64,
    },
    /// Another policy was chosen. The engine may have refused it; a replay refuses it in the same way.
    Policy {
        /// The preset with its parameters, `NAME,KEY=VALUE…`.
        text: String,
    },
    /// Classes of data were given a promise.
    Promise {
        /// Rows of promises, joined by `;` (the words of `qos`).
        text: String,
    },
    /// The class of data of an extent was set from outside.
    Reclassify {
        /// The extent.
        extent: ExtentId,
        /// The class, 0…63.
        class: u8,
        /// The classes of its parts, at most 1024: number of pieces of 4 KiB, class. Empty if they are not known or do not matter.
        runs: Vec<(u32, u8)>,
    },
}

/// A decision of the engine: an effect, with a hash of the bytes if it writes metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The effect.
    pub effect: Effect,
    /// [`meta_hash`] of a metadata write; 0 for any other effect.
    pub meta: u64,
}

/// XXH3 (64 bits) of metadata: 4 KiB in well under a microsecond, so that it can be taken on the engine's thread.
pub fn meta_hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The name under which [`Call::Set`] states that dirty data was asked home; no parameter has it.
pub const CLEAN: &str = "clean";
/// Longest name of a parameter.
pub(super) const KEY_MAX: usize = 256;
pub(super) const SUBMIT: u8 = 0;
pub(super) const COMPLETE: u8 = 1;
pub(super) const TICK: u8 = 2;
pub(super) const CLOSE: u8 = 3;
pub(super) const SET: u8 = 4;
pub(super) const POLICY: u8 = 5;
pub(super) const RECLASSIFY: u8 = 6;
pub(super) const PROMISE: u8 = 7;
/// Longest text of a policy: sixteen rules fit.
pub(super) const POLICY_MAX: usize = 4096;
/// Most parts of an extent: it has at most 4 MiB, and a part at least 4 KiB.
pub(super) const RUNS_MAX: usize = 1024;
/// This bit of a class says that the classes of the extent's parts follow.
pub(super) const PARTS: u8 = 1 << 7;
/// A bit of an event's first byte: the time differs from that of the event before.
pub(super) const LATER: u8 = 8;
/// A value in the field for the number of effects: the true number follows.
pub(super) const MANY: u8 = 15;

fn code<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|x| x == one).unwrap_or(0) as u8
}

/// The values from which the next differences are taken.
pub(super) struct Last {
    pub(super) time: Nanos,
    /// End of the last request.
    pub(super) request: u64,
    /// End of the last operation of each member.
    pub(super) members: [u64; 256],
}

impl Last {
    pub(super) fn new(time: Nanos) -> Last {
        Last {
            time,
            request: 0,
            members: [0; 256],
        }
    }
}

/// Collects events as chunks.
pub struct Encoder {
    bytes: Vec<u8>,
    last: Last,
    events: u64,
    requests: u64,
}

impl Encoder {
    /// Begins an encoder. The first chunk uses the buffer `room`.
    pub fn new(room: Vec<u8>) -> Encoder {
        let mut encoder = Encoder {
            bytes: room,
            last: Last::new(Nanos(0)),
            events: 0,
            requests: 0,
        };
        encoder.begin();
        encoder
    }

    fn begin(&mut self) {
        self.bytes.clear();
        self.last = Last::new(self.last.time);
        put(&mut self.bytes, self.events);
        put(&mut self.bytes, self.last.time.0);
    }

    /// The number of events so far, and the number of requests among them.
    pub fn counts(&self) -> (u64, u64) {
        (self.events, self.requests)
    }

    /// Bytes of the chunk so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the chunk holds no event.
    pub fn is_empty(&self) -> bool {
        // Two numbers of at most ten bytes stand before the first event.
        self.bytes.len() <= 20 && {
            let mut c = Cursor::new(&self.bytes);
            c.number().is_ok() && c.number().is_ok() && c.is_empty()
        }
    }

    /// Returns the chunk. The next chunk uses the buffer `room`.
    pub fn take(&mut self, room: Vec<u8>) -> Vec<u8> {
        let chunk = std::mem::replace(&mut self.bytes, room);
        self.begin();
        chunk
    }

    /// Appends one call at `now` and the effects that it had. `meta` hashes the bytes of a metadata write among the effects.
    pub fn event(
        &mut self,
        now: Nanos,
        call: &Call,
        effects: &[Effect],
        meta: impl Fn(&DeviceOp) -> u64,
    ) {
        self.events += 1;
        let kind = match call {
            Call::Submit(_) => SUBMIT,
            Call::Complete { .. } => COMPLETE,
            Call::Tick => TICK,
            Call::Close => CLOSE,
            Call::Set { .. } => SET,
            Call::Policy { .. } => POLICY,
            Call::Reclassify { .. } => RECLASSIFY,
            Call::Promise { .. } => PROMISE,
        };
        let later = now.since(self.last.time);
        let few = if effects.len() < usize::from(MANY) {
            effects.len() as u8
        } else {
            MANY
        };
        let moved = if later.0 == 0 { 0 } else { LATER };
        let out = &mut self.bytes;
        out.push(kind | moved | few << 4);
        if few == MANY {
            put(out, effects.len() as u64);
        }
        if later.0 != 0 {
            put(out, later.0);
            self.last.time = now;
        }
        match call {
            Call::Submit(r) => {
                self.requests += 1;
                self.request(r);
            }
            Call::Complete { id, result } => {
                put(out, u64::from(id.0));
                match result {
                    Ok(n) => put(out, u64::from(*n) << 1),
                    Err(e) => put(out, u64::from(code(&ERRORS, e)) << 1 | 1),
                }
            }
            Call::Tick | Call::Close => {}
            Call::Set { key, value } => {
                put_bytes(out, &key.as_bytes()[..key.len().min(KEY_MAX)]);
                out.extend_from_slice(&value.to_bits().to_le_bytes());
            }
            Call::Policy { text } | Call::Promise { text } => {
                put_bytes(out, &text.as_bytes()[..text.len().min(POLICY_MAX)]);
            }
            Call::Reclassify {
                extent,
                class,
                runs,
            } => {
                let runs = &runs[..runs.len().min(RUNS_MAX)];
                put(out, u64::from(extent.0));
                out.push(class | if runs.is_empty() { 0 } else { PARTS });
                if !runs.is_empty() {
                    put(out, runs.len() as u64);
                }
                for (pieces, class) in runs {
                    put(out, u64::from(*pieces));
                    out.push(*class);
                }
            }
        }
        for e in effects {
            self.effect(e, &meta);
        }
    }

    fn request(&mut self, r: &Request) {
        let out = &mut self.bytes;
        out.push(code(&OPS, &r.op) | u8::from(r.fua) << 3 | u8::from(r.class != 0) << 4);
        put(out, u64::from(r.tag.0));
        put_from(out, self.last.request, r.offset);
        put(out, u64::from(r.len));
        if r.class != 0 {
            out.push(r.class);
        }
        self.last.request = r.offset.wrapping_add(u64::from(r.len));
    }

    fn effect(&mut self, e: &Effect, meta: &impl Fn(&DeviceOp) -> u64) {
        let out = &mut self.bytes;
        let mut numbers = |kind: u8, ns: &[u32]| {
            out.push(kind);
            for n in ns {
                put(out, u64::from(*n));
            }
        };
        match *e {
            Effect::Start(op) => self.start(&op, meta),
            Effect::Zero { tag, offset, len } => numbers(1, &[tag.0, offset, len]),
            Effect::CopyFromMove {
                index,
                from,
                tag,
                to,
                len,
            } => {
                numbers(2, &[u32::from(index), from, tag.0, to, len]);
            }
            Effect::Patch { tag } => numbers(3, &[tag.0]),
            Effect::Keep { seq } => {
                out.push(5);
                put(out, seq);
            }
            Effect::Reply { tag, result } => {
                let how = result.map_or_else(|e| code(&ERRORS, &e) + 1, |()| 0);
                numbers(4 | how << 3, &[tag.0]);
            }
        }
    }

    fn start(&mut self, op: &DeviceOp, meta: &impl Fn(&DeviceOp) -> u64) {
        let out = &mut self.bytes;
        out.push(code(&KINDS, &op.kind) << 3 | u8::from(op.fua) << 6);
        let buf = match op.buf {
            BufRef::None => 0,
            BufRef::Request { .. } => 1,
            BufRef::Move { .. } => 2,
            BufRef::Meta => 3,
        };
        out.extend_from_slice(&[op.member.0, buf]);
        put(out, u64::from(op.id.0));
        let last = &mut self.last.members[usize::from(op.member.0)];
        put_from(out, *last, op.offset);
        put(out, u64::from(op.len));
        *last = op.offset.wrapping_add(u64::from(op.len));
        match op.buf {
            BufRef::None => {}
            BufRef::Request { tag, offset } => {
                put(out, u64::from(tag.0));
                put(out, u64::from(offset));
            }
            BufRef::Move { index, offset } => {
                put(out, u64::from(index));
                put(out, u64::from(offset));
            }
            BufRef::Meta => out.extend_from_slice(&meta(op).to_le_bytes()),
        }
    }
}
