//! Regression tests for faults that reviews found.
#![allow(clippy::unwrap_used)]

use isotherm_core::engine::Params;
use isotherm_core::store::journal::{Staging, Tip};
use isotherm_core::store::open::Mode;
use isotherm_core::store::superblock::{MemberEntry, Shape};
use isotherm_core::store::{Media, MediaError, MetaArea, Superblock, format, open};
use isotherm_core::*;

struct Mem(Vec<Vec<u8>>);
impl Media for Mem {
    fn read(&mut self, m: MemberId, o: u64, b: &mut [u8]) -> Result<(), MediaError> {
        b.copy_from_slice(&self.0[m.0 as usize][o as usize..o as usize + b.len()]);
        Ok(())
    }
    fn write(&mut self, m: MemberId, o: u64, b: &[u8]) -> Result<(), MediaError> {
        self.0[m.0 as usize][o as usize..o as usize + b.len()].copy_from_slice(b);
        Ok(())
    }
    fn flush(&mut self, _m: MemberId) -> Result<(), MediaError> {
        Ok(())
    }
}
fn sb() -> Superblock {
    let area = MetaArea {
        ring_blocks: 8,
        ..MetaArea::for_volume(24, 8, 0)
    };
    let e = |i: u8, slots| MemberEntry {
        uuid: [i + 1; 16],
        tier: TierId(i),
        slots,
        ..MemberEntry::default()
    };
    let shape = Shape {
        kind: geometry::Kind::Tiering,
        extent_shift: 12,
        block_shift: 9,
        extents: 24,
        area,
    };
    Superblock::new([7; 16], 1, shape, vec![e(0, 10), e(1, 20)]).placed(4096)
}
fn found(m: &Mem) -> Vec<Option<Superblock>> {
    (0..2)
        .map(|i| Superblock::decode(&m.0[i][..4096]).ok())
        .collect()
}
fn rec(s: &mut Staging, e: u32, slot: u32) {
    let r = s.rest();
    r[0] = 1; // on member 0
    r[4..8].copy_from_slice(&e.to_le_bytes());
    r[8..12].copy_from_slice(&slot.to_le_bytes());
    s.advance(1);
    s.seal();
}

#[test]
fn resync_keeps_the_accepted_block() {
    let sb = sb();
    let mut m = Mem(vec![vec![0; 1 << 20]; 2]);
    format(&mut m, &sb).unwrap();
    let l = sb.layout();
    // Session A: a round writes two blocks, 1 and 2. The power fails: 1 is lost, 2 was written.
    let mut a = Staging::new(
        sb.uuid,
        0xA,
        Tip {
            next_seq: 1,
            epoch: 1,
            crc: 0,
        },
        16,
    );
    rec(&mut a, 0, 0);
    rec(&mut a, 1, 1);
    m.write(MemberId(0), l.ring_offset(l.primary, 2), a.bytes(2, 3))
        .unwrap();
    let o = {
        let f = found(&m);
        open(&mut m, &f, Mode::ReadWrite { epoch: 0xB })
    }
    .unwrap();
    assert_eq!(o.tip.next_seq, 1);
    // Session B: a round writes two blocks to primary and mirror. The mirror has both, the primary only the first.
    let mut b = Staging::new(sb.uuid, 0xB, o.tip, 16);
    rec(&mut b, 3, 3);
    rec(&mut b, 4, 4);
    for mm in [MemberId(0), MemberId(1)] {
        m.write(mm, l.ring_offset(l.primary, 1), b.bytes(1, 2))
            .unwrap();
    }
    m.write(MemberId(1), l.ring_offset(l.primary, 2), b.bytes(2, 3))
        .unwrap();
    let o = {
        let f = found(&m);
        open(&mut m, &f, Mode::ReadWrite { epoch: 0xC })
    }
    .unwrap();
    assert_eq!(o.tip.next_seq, 3);
    // Session C: one round, flushed, then another, flushed.
    let mut c = Staging::new(sb.uuid, 0xC, o.tip, 16);
    rec(&mut c, 5, 5);
    c.last_flushed = 3;
    rec(&mut c, 6, 6);
    for mm in [MemberId(0), MemberId(1)] {
        m.write(mm, l.ring_offset(l.primary, 3), c.bytes(3, 5))
            .unwrap();
    }
    let r = {
        let f = found(&m);
        open(&mut m, &f, Mode::ReadWrite { epoch: 0xD })
    };
    match r {
        Ok(o) => assert_eq!(o.tip.next_seq, 5),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn pins_overflow() {
    let mut p = isotherm_core::pins::Pins::new(4);
    for _ in 0..65536 {
        p.pin(Slot(1), false);
    }
    assert!(p.is_pinned(Slot(1)));
}

fn engine(params: Params) -> (Engine, Mem) {
    let sb = sb();
    let mut m = Mem(vec![vec![0; 1 << 20]; 2]);
    format(&mut m, &sb).unwrap();
    let f = found(&m);
    let o = open(&mut m, &f, Mode::ReadWrite { epoch: 2 }).unwrap();
    (
        Engine::new(
            o,
            isotherm_core::policy::build("linear", core::iter::empty()).unwrap(),
            params,
        ),
        m,
    )
}
fn drain(e: &mut Engine, now: Nanos, out: &mut Vec<Effect>, fail_meta: bool) {
    while !out.is_empty() {
        let v: Vec<Effect> = std::mem::take(out);
        for x in v {
            if let Effect::Start(op) = x {
                let r = if fail_meta && op.kind == OpKind::Flush {
                    Err(IoError::Io)
                } else {
                    Ok(op.len)
                };
                e.complete(now, op.id, r, out);
            }
        }
    }
}
fn spins(e: &mut Engine, mut now: Nanos, fail: bool) -> u32 {
    let mut out = vec![];
    let mut n = 0;
    for _ in 0..1000 {
        let Some(t) = e.next_wake() else { break };
        if t > now {
            now = t;
            n = 0;
        } else {
            n += 1;
        }
        e.tick(now, &mut out);
        drain(e, now, &mut out, fail);
        if n > 100 {
            break;
        }
    }
    n
}
#[test]
fn idle_sleeping_mirror_does_not_spin() {
    let (mut e, _m) = engine(Params {
        standby_after: vec![None, Some(Nanos::from_secs(2))],
        ..Params::default()
    });
    let mut out = vec![];
    let now = Nanos::from_secs(1);
    for op in [RequestOp::Write, RequestOp::Flush] {
        e.submit(
            now,
            Request {
                tag: Tag(1),
                op,
                offset: 0,
                len: if op == RequestOp::Write { 4096 } else { 0 },
                fua: false,
                class: 0,
            },
            &mut out,
        );
        drain(&mut e, now, &mut out, false);
    }
    assert_eq!(spins(&mut e, now, false), 0);
}
#[test]
fn failed_volume_does_not_spin() {
    let (mut e, _m) = engine(Params::default());
    let mut out = vec![];
    let now = Nanos::from_secs(1);
    e.submit(
        now,
        Request {
            tag: Tag(1),
            op: RequestOp::Write,
            offset: 0,
            len: 4096,
            fua: false,
            class: 0,
        },
        &mut out,
    );
    drain(&mut e, now, &mut out, false);
    e.submit(
        now,
        Request {
            tag: Tag(2),
            op: RequestOp::Write,
            offset: 4096,
            len: 4096,
            fua: true,
            class: 0,
        },
        &mut out,
    );
    drain(&mut e, now, &mut out, true);
    assert!(e.has_failed());
    // After the failure the engine must not request to be woken again and again.
    assert_eq!(spins(&mut e, now, true), 0);
}
#[test]
fn linear_stays_linear() {
    let (mut e, _m) = engine(Params::default());
    let mut out = vec![];
    let now = Nanos::from_secs(1);
    for (op, off) in [
        (RequestOp::Write, 5),
        (RequestOp::Flush, 0),
        (RequestOp::Discard, 5),
        (RequestOp::Write, 5),
        (RequestOp::Write, 0),
    ] {
        e.submit(
            now,
            Request {
                tag: Tag(1),
                op,
                offset: off * 4096,
                len: if op == RequestOp::Flush { 0 } else { 4096 },
                fua: false,
                class: 0,
            },
            &mut out,
        );
        drain(&mut e, now, &mut out, false);
    }
    assert_eq!(e.space().map.home(ExtentId(5)), Some(Slot(5)));
}
#[test]
fn short_transfer_of_less_than_a_block_ends() {
    let (mut e, _m) = engine(Params::default());
    let mut out = vec![];
    let now = Nanos::from_secs(1);
    e.submit(
        now,
        Request {
            tag: Tag(1),
            op: RequestOp::Write,
            offset: 0,
            len: 4096,
            fua: false,
            class: 0,
        },
        &mut out,
    );
    let mut n = 0;
    while let Some(Effect::Start(op)) = out.pop() {
        n += 1;
        assert!(n <= 1000, "asked again for ever");
        e.complete(now, op.id, Ok(100.min(op.len)), &mut out);
        if op.kind != OpKind::Write {
            break;
        }
    }
}
