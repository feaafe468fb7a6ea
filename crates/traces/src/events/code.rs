//! Encodes one event as bytes, and decodes it.
//!
//! Made for the engine's thread: a few stores per number, no allocation, no compression. Times and offsets are written as differences from
//! the previous ones. Each chunk starts the differences anew, so that it can be read by itself.

use super::tables::{ERRORS, KINDS, OPS};
use isotherm_core::{
    BufRef, DeviceOp, Effect, ExtentId, IoError, MemberId, Nanos, OpId, Request, Tag,
};
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
    /// A parameter or knob was set. The engine may have refused it; a replay refuses it in the same way.
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
    },
}

/// What the engine decided: an effect, with a hash of the bytes where it writes metadata.
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

/// Longest name of a parameter.
const KEY_MAX: usize = 256;
const SUBMIT: u8 = 0;
const COMPLETE: u8 = 1;
const TICK: u8 = 2;
const CLOSE: u8 = 3;
const SET: u8 = 4;
const POLICY: u8 = 5;
const RECLASSIFY: u8 = 6;
const PROMISE: u8 = 7;
/// Longest text of a policy: sixteen rules fit.
const POLICY_MAX: usize = 4096;
/// A bit of an event's first byte: the time differs from that of the event before.
const LATER: u8 = 8;
/// A value in the field for the number of effects: the true number follows.
const MANY: u8 = 15;

fn code<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|x| x == one).unwrap_or(0) as u8
}

/// Appends a number in groups of seven bits, the low groups first.
pub(super) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends a difference. Small differences of either sign are short.
fn put_from(out: &mut Vec<u8>, from: u64, to: u64) {
    let d = to.wrapping_sub(from) as i64;
    put(out, (d << 1 ^ d >> 63) as u64);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The values from which the next differences are taken.
struct Last {
    time: Nanos,
    /// End of the last request.
    request: u64,
    /// End of the last operation of each member.
    members: [u64; 256],
}

impl Last {
    fn new(time: Nanos) -> Last {
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
            Call::Reclassify { extent, class } => {
                put(out, u64::from(extent.0));
                out.push(*class);
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

/// The reason why bytes are not valid events.
pub(super) type Bad = &'static str;

/// A slice that is read from the front.
pub(super) struct Cursor<'a> {
    left: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(left: &'a [u8]) -> Cursor<'a> {
        Cursor { left }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8], Bad> {
        let (a, b) = self.left.split_at_checked(n).ok_or("it ends too early")?;
        self.left = b;
        Ok(a)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Bad> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn number(&mut self) -> Result<u64, Bad> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.byte()?;
            let bits = u64::from(b & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            n |= bits << shift;
            if b < 0x80 {
                return Ok(n);
            }
        }
        Err("a number is too long")
    }

    pub(super) fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, Bad> {
        T::try_from(self.number()?).map_err(|_| "a number is too large")
    }

    fn from(&mut self, last: u64) -> Result<u64, Bad> {
        let z = self.number()?;
        let d = (z >> 1) as i64 ^ -((z & 1) as i64);
        Ok(last.wrapping_add(d as u64))
    }

    pub(super) fn fixed(&mut self) -> Result<u64, Bad> {
        Ok(self
            .take(8)?
            .iter()
            .rev()
            .fold(0, |n, x| n << 8 | u64::from(*x)))
    }

    pub(super) fn bytes(&mut self, max: usize) -> Result<&'a [u8], Bad> {
        let n: usize = self.narrow()?;
        if n > max {
            return Err("a text is too long");
        }
        self.take(n)
    }

    pub(super) fn text(&mut self, max: usize) -> Result<String, Bad> {
        let bytes = self.bytes(max)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| "a text is not UTF-8")
    }
}

fn pick<T: Copy>(all: &[T], code: u64) -> Result<T, Bad> {
    all.get(usize::try_from(code).unwrap_or(usize::MAX))
        .copied()
        .ok_or("an unknown code")
}

/// Reads a chunk.
pub(super) struct Decoder {
    at: usize,
    last: Last,
}

impl Decoder {
    /// Begins at the front of a chunk whose first event must have this number.
    pub(super) fn new(chunk: &[u8], event: u64) -> Result<Decoder, Bad> {
        let mut c = Cursor::new(chunk);
        if c.number()? != event {
            return Err("events are missing before it");
        }
        let last = Last::new(Nanos(c.number()?));
        Ok(Decoder {
            at: chunk.len() - c.left.len(),
            last,
        })
    }

    /// The next event. Its decisions are appended to `out`. `None` at the end of the chunk.
    pub(super) fn next(
        &mut self,
        chunk: &[u8],
        out: &mut Vec<Decision>,
    ) -> Result<Option<(Nanos, Call)>, Bad> {
        out.clear();
        let mut c = Cursor::new(chunk.get(self.at..).unwrap_or_default());
        if c.is_empty() {
            return Ok(None);
        }
        let head = c.byte()?;
        let n = match head >> 4 {
            MANY => c.number()?,
            n => u64::from(n),
        };
        if head & LATER != 0 {
            let later = c.number()?;
            let time = self.last.time.0.checked_add(later);
            self.last.time = Nanos(time.ok_or("time overflows")?);
        }
        let call = match head & 7 {
            SUBMIT => Call::Submit(self.request(&mut c)?),
            COMPLETE => {
                let id = OpId(c.narrow()?);
                let r = c.number()?;
                let result = if r & 1 == 0 {
                    Ok(u32::try_from(r >> 1).map_err(|_| "a number is too large")?)
                } else {
                    Err(pick(&ERRORS, r >> 1)?)
                };
                Call::Complete { id, result }
            }
            TICK => Call::Tick,
            CLOSE => Call::Close,
            SET => Call::Set {
                key: c.text(KEY_MAX)?,
                value: f64::from_bits(c.fixed()?),
            },
            POLICY => Call::Policy {
                text: c.text(POLICY_MAX)?,
            },
            RECLASSIFY => Call::Reclassify {
                extent: ExtentId(c.narrow()?),
                class: c.byte()?,
            },
            PROMISE => Call::Promise {
                text: c.text(POLICY_MAX)?,
            },
            _ => return Err("an unknown call"),
        };
        for _ in 0..n {
            out.push(self.decision(&mut c)?);
        }
        self.at = chunk.len() - c.left.len();
        Ok(Some((self.last.time, call)))
    }

    fn request(&mut self, c: &mut Cursor<'_>) -> Result<Request, Bad> {
        let b = c.byte()?;
        if b >> 5 != 0 {
            return Err("an unknown code");
        }
        let r = Request {
            op: pick(&OPS, u64::from(b & 7))?,
            fua: b & 8 != 0,
            tag: Tag(c.narrow()?),
            offset: c.from(self.last.request)?,
            len: c.narrow()?,
            class: if b & 16 != 0 { c.byte()? } else { 0 },
        };
        self.last.request = r.offset.wrapping_add(u64::from(r.len));
        Ok(r)
    }

    fn decision(&mut self, c: &mut Cursor<'_>) -> Result<Decision, Bad> {
        let b = c.byte()?;
        let mut meta = 0;
        let effect = match (b & 7, b >> 3) {
            (0, _) => {
                let op = self.start(b, c, &mut meta)?;
                Effect::Start(op)
            }
            (1, 0) => Effect::Zero {
                tag: Tag(c.narrow()?),
                offset: c.narrow()?,
                len: c.narrow()?,
            },
            (2, 0) => Effect::CopyFromMove {
                index: c.narrow()?,
                from: c.narrow()?,
                tag: Tag(c.narrow()?),
                to: c.narrow()?,
                len: c.narrow()?,
            },
            (3, 0) => Effect::Patch {
                tag: Tag(c.narrow()?),
            },
            (4, how) => Effect::Reply {
                tag: Tag(c.narrow()?),
                result: match how {
                    0 => Ok(()),
                    n => Err(pick(&ERRORS, u64::from(n) - 1)?),
                },
            },
            _ => return Err("an unknown effect"),
        };
        Ok(Decision { effect, meta })
    }

    fn start(&mut self, b: u8, c: &mut Cursor<'_>, meta: &mut u64) -> Result<DeviceOp, Bad> {
        if b & 0x80 != 0 {
            return Err("an unknown code");
        }
        let kind = pick(&KINDS, u64::from(b >> 3 & 7))?;
        let (member, buf) = (c.byte()?, c.byte()?);
        let id = OpId(c.narrow()?);
        let last = &mut self.last.members[usize::from(member)];
        let offset = c.from(*last)?;
        let len: u32 = c.narrow()?;
        *last = offset.wrapping_add(u64::from(len));
        let buf = match buf {
            0 => BufRef::None,
            1 => BufRef::Request {
                tag: Tag(c.narrow()?),
                offset: c.narrow()?,
            },
            2 => BufRef::Move {
                index: c.narrow()?,
                offset: c.narrow()?,
            },
            3 => {
                *meta = c.fixed()?;
                BufRef::Meta
            }
            _ => return Err("an unknown buffer"),
        };
        Ok(DeviceOp {
            id,
            member: MemberId(member),
            kind,
            offset,
            len,
            buf,
            fua: b & 0x40 != 0,
        })
    }
}
