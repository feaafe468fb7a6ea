//! Decodes the events of a chunk; the counterpart of `code.rs`.

use crate::code::{
    CLOSE, COMPLETE, Call, Decision, KEY_MAX, LATER, Last, MANY, PARTS, POLICY, POLICY_MAX,
    PROMISE, RECLASSIFY, RUNS_MAX, SET, SUBMIT, TICK,
};
use crate::numbers::{Bad, Cursor};
use crate::tables::{ERRORS, KINDS, OPS};
use isotherm_core::{BufRef, DeviceOp, Effect, ExtentId, MemberId, Nanos, OpId, Request, Tag};

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
            at: chunk.len() - c.left(),
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
            RECLASSIFY => {
                let (extent, class) = (ExtentId(c.narrow()?), c.byte()?);
                let parts = if class & PARTS == 0 { 0 } else { c.number()? };
                if parts > RUNS_MAX as u64 {
                    return Err("too many parts");
                }
                let mut runs = Vec::with_capacity(parts as usize);
                for _ in 0..parts {
                    runs.push((c.narrow()?, c.byte()?));
                }
                Call::Reclassify {
                    extent,
                    class: class & !PARTS,
                    runs,
                }
            }
            PROMISE => Call::Promise {
                text: c.text(POLICY_MAX)?,
            },
            _ => return Err("an unknown call"),
        };
        for _ in 0..n {
            out.push(self.decision(&mut c)?);
        }
        self.at = chunk.len() - c.left();
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
            (5, 0) => Effect::Keep { seq: c.number()? },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Encoder;

    #[test]
    fn classes_of_parts_come_back_as_they_were() {
        let mut encoder = Encoder::new(Vec::new());
        let most = [(1, 7), (1, 0)].repeat(RUNS_MAX / 2);
        let calls = [vec![], vec![(3, 7), (13, 63)], most].map(|runs| Call::Reclassify {
            extent: ExtentId(70_000),
            class: 63,
            runs,
        });
        for call in &calls {
            encoder.event(Nanos(5), call, &[], |_| 0);
        }
        let chunk = encoder.take(Vec::new());
        let mut decoder = Decoder::new(&chunk, 0).unwrap();
        for call in calls {
            let read = decoder.next(&chunk, &mut Vec::new());
            assert_eq!(read, Ok(Some((Nanos(5), call))));
        }
        assert_eq!(decoder.next(&chunk, &mut Vec::new()), Ok(None));
    }
}
