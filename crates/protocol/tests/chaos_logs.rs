//! The logs of chaos runs are accepted by the model of the journal, and logs that are not true are not.
//!
//! A chaos policy runs over the hostile world; the journal's writes and flushes are noted on their way between engine and world, and what
//! each opening found.

use isotherm_core::engine::Mutant;
use isotherm_core::geometry::Kind;
use isotherm_core::run::{Loop, Next};
use isotherm_core::store::open::Mode;
use isotherm_core::store::superblock::{self, MemberEntry};
use isotherm_core::store::{Layout, MetaArea, Superblock, format, journal, open};
use isotherm_core::{
    BufRef, DeviceOp, Effect, Engine, MemberId, Nanos, OpId, OpKind, Params, Request, RequestOp,
    Tag, TierId, World,
};
use isotherm_hostile::Rng;
use isotherm_hostile::chaos::Chaos;
use isotherm_hostile::disk::{Disk, Disks};
use isotherm_hostile::world::{Faults, Hostile};
use isotherm_protocol::journal::log::{Event, accept};
use std::collections::BTreeMap;

const EXTENTS: u32 = 24;
/// So long that it does not wrap.
const RING: u32 = 1024;

/// The world, and what passes by on the way to it.
struct Noting<'a> {
    world: Hostile,
    layout: Layout,
    uuid: [u8; 16],
    log: &'a mut Vec<Event>,
    /// The writes to a ring that have not ended, and the flushes: operation, member, whether it is durable by itself or a flush.
    writes: BTreeMap<OpId, (MemberId, bool)>,
    flushes: BTreeMap<OpId, (MemberId, bool)>,
    /// The members with ended writes that are not flushed.
    unflushed: Vec<MemberId>,
    answered: u64,
}

impl Noting<'_> {
    fn begins(&mut self, op: &DeviceOp, meta: &[u8]) {
        if op.kind == OpKind::Flush {
            let covers = self.unflushed.contains(&op.member);
            self.flushes.insert(op.id, (op.member, covers));
        }
        if op.buf != BufRef::Meta || op.kind != OpKind::Write {
            return;
        }
        let bytes = self.layout.area.ring_bytes();
        let in_ring = |c: &isotherm_core::store::Carrier| {
            c.member == op.member && (c.ring_at..c.ring_at + bytes).contains(&op.offset)
        };
        let Some(carrier) = self.layout.carriers().position(|c| in_ring(&c)) else {
            return;
        };
        let blocks = meta.chunks_exact(4096);
        let headers: Vec<_> = blocks
            .filter_map(|b| journal::decode(b, &self.uuid))
            .collect();
        if carrier == 0 {
            self.log.extend(headers.iter().map(|h| Event::Write {
                seq: h.seq,
                last_flushed: h.last_flushed,
            }));
        } else {
            let seq = headers.last().map_or(0, |h| h.seq);
            // One write may take several operations.
            if let Some(Event::Mirror { .. }) = self.log.last() {
                self.log.pop();
            }
            self.log.push(Event::Mirror { seq });
        }
        self.writes.insert(op.id, (op.member, op.fua));
    }

    fn ends(&mut self, id: OpId) {
        if let Some((member, durable)) = self.writes.remove(&id) {
            self.unflushed.extend((!durable).then_some(member));
        } else if let Some((member, true)) = self.flushes.remove(&id) {
            self.unflushed.retain(|&m| m != member);
        } else {
            return;
        }
        if self.writes.is_empty() && self.unflushed.is_empty() {
            self.log.push(Event::End);
        }
    }
}

impl World for Noting<'_> {
    fn now(&self) -> Nanos {
        self.world.now()
    }
    fn wait(&mut self, until: Option<Nanos>, events: &mut Vec<isotherm_core::Event>) {
        self.world.wait(until, events);
        for event in events.iter() {
            if let isotherm_core::Event::Finished { id, .. } = event {
                self.ends(*id);
            }
        }
    }
    fn carry_out(&mut self, effect: &Effect, meta: &[u8]) {
        match effect {
            Effect::Start(op) => self.begins(op, meta),
            Effect::Reply { .. } => self.answered += 1,
            _ => {}
        }
        self.world.carry_out(effect, meta);
    }
}

fn new_volume() -> Superblock {
    let recorded = Kind::Tiering.recorded(EXTENTS, 10);
    let area = MetaArea {
        ring_blocks: RING,
        ..MetaArea::of(Kind::Tiering, recorded, 10, 8, 0)
    };
    let entry = |i: u8, slots: u32| MemberEntry {
        uuid: [i + 1; 16],
        tier: TierId(i),
        slots,
        ..MemberEntry::default()
    };
    let form = superblock::Shape {
        kind: Kind::Tiering,
        extent_shift: 12,
        block_shift: 9,
        extents: EXTENTS,
        area,
    };
    let members = vec![entry(0, 10), entry(1, 20)];
    Superblock::new([0x42; 16], 1, form, members).placed(4096)
}

/// A random request for whole blocks.
fn request(rng: &mut Rng, world: &mut Hostile, tag: Tag) -> Request {
    let (from, len) = (rng.below(u64::from(EXTENTS) * 8 - 8), 1 + rng.below(8));
    let mut req = Request {
        tag,
        op: RequestOp::Write,
        offset: from * 512,
        len: len as u32 * 512,
        fua: rng.one_in(6),
        class: 0,
    };
    match rng.below(8) {
        0 | 1 => (req.op, req.offset, req.len, req.fua) = (RequestOp::Flush, 0, 0, false),
        2 => (req.op, req.fua) = (RequestOp::Discard, false),
        _ => {}
    }
    let bytes = req.len as usize;
    let payload = (req.op == RequestOp::Write).then(|| vec![tag.0 as u8; bytes]);
    world.give(tag, bytes, 0, payload);
    req
}

/// A run of several lives, each of which ends with a loss of power.
fn run(seed: u64, lives: u64, mutant: Option<Mutant>) -> Vec<Event> {
    let mut rng = Rng::new(seed);
    let sb = new_volume();
    let mut disks: Vec<Disk> = sb
        .members
        .iter()
        .map(|m| Disk::new(m.bytes as usize))
        .collect();
    format(&mut Disks::of(&mut disks), &sb).expect("made");
    let mut log = Vec::new();
    for life in 0..lives {
        let found: Vec<_> = disks
            .iter()
            .map(|d| Superblock::decode(d.read(0, 4096)).ok())
            .collect();
        let mut all = Disks::of(&mut disks);
        let epoch = 100 * seed + life + 2;
        let opened = open(&mut all, &found, Mode::ReadWrite { epoch }).expect("opened");
        let next_seq = opened.tip.next_seq;
        // The model begins with an open volume.
        log.extend((life > 0).then_some(Event::Opened { next_seq }));
        let params = Params {
            commit_interval: Nanos::from_millis(20 + rng.below(200)),
            stage_blocks: 8,
            piece_blocks: 1,
            mutant,
            ..Params::default()
        };
        let layout = opened.layout;
        let start = opened.time_base;
        let mut engine = Engine::new(opened, Box::new(Chaos::new(seed ^ life)), params);
        let inner = Rng::new(rng.draw());
        let mut world = Noting {
            world: Hostile::new(
                std::mem::take(&mut disks),
                inner,
                Faults::default(),
                4096,
                start,
            ),
            layout,
            uuid: sb.uuid,
            log: &mut log,
            writes: BTreeMap::new(),
            flushes: BTreeMap::new(),
            unflushed: Vec::new(),
            answered: 0,
        };
        let (mut issued, last) = (0, 40 + rng.below(200));
        let done = Loop::new().run(&mut engine, &mut world, |run, engine, world| {
            let crash = world.world.steps >= last || world.answered == 150;
            if crash || engine.has_failed() {
                return Ok(Next::Stop);
            }
            while issued < 150 && issued - world.answered < 8 && !rng.one_in(4) {
                issued += 1;
                let req = request(&mut rng, &mut world.world, Tag(issued as u32));
                run.tell(engine, world, isotherm_core::Event::Arrived(req));
            }
            Ok::<_, String>(Next::Wait(engine.next_wake()))
        });
        done.expect("the run ends");
        let hostile = world.world;
        log.push(Event::PowerFails);
        (disks, _) = hostile.crash();
    }
    log
}

#[test]
fn logs_of_chaos_runs_are_accepted() {
    let (mut events, mut openings) = (0, 0);
    for seed in 0..60 {
        let log = run(seed, 3, None);
        let accepted = accept(&log);
        assert!(
            accepted.is_ok(),
            "ISOTHERM_SEED={seed}: {accepted:?}: {log:?}"
        );
        events += log.len();
        openings += log
            .iter()
            .filter(|e| matches!(e, Event::Opened { .. }))
            .count();
    }
    println!("{events} events, {openings} openings after a loss of power");
    assert!(events > 1000 && openings == 120);
}

/// An altered log is not accepted: a block is missing, or an opening finds fewer blocks than were acknowledged.
#[test]
fn altered_logs_are_not_accepted() {
    let log = run(1, 3, None);
    let writes = log
        .iter()
        .enumerate()
        .filter(|(_, e)| matches!(e, Event::Write { .. }));
    for (place, _) in writes {
        let mut altered = log.clone();
        altered.remove(place);
        assert!(accept(&altered).is_err(), "without event {place}");
    }
    for (place, event) in log.iter().enumerate() {
        let Event::Opened { next_seq } = *event else {
            continue;
        };
        for wrong in [1, next_seq + 9] {
            let mut altered = log.clone();
            altered[place] = Event::Opened { next_seq: wrong };
            assert!(accept(&altered).is_err(), "an opening with {wrong}");
        }
    }
}

/// An engine that acknowledges what it did not flush states something that the model knows to be untrue.
#[test]
fn logs_of_a_mutant_are_not_accepted() {
    let refused =
        (0..20).filter(|&seed| accept(&run(seed, 1, Some(Mutant::SkipJournalFlush))).is_err());
    assert!(refused.count() > 10);
}
