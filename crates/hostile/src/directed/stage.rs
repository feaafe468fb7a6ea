//! A volume that a scene controls completely: the scene requests every step, and decides when each device operation ends.

use super::scripted::ScriptedPolicy;
use crate::disk::{Disk, Disks};
use crate::run::new_disks;
use crate::truth::{self, CELL, Change, Expect, Truth};
use crate::world::{Fate, Hostile};
use isotherm_core::engine::{Mutant, Params};
use isotherm_core::geometry::Kind;
use isotherm_core::policy::{Action, Uses, WriteTo};
use isotherm_core::run::Loop;
use isotherm_core::store::keep::Kept;
use isotherm_core::store::superblock::{self, MemberEntry};
use isotherm_core::store::{BLOCK, Carrier, MetaArea, Superblock, format};
use isotherm_core::{
    DeviceOp, Engine, Event, ExtentId, IoError, MemberId, Nanos, OpKind, Request, RequestOp, Tag,
    TierId,
};
use std::collections::BTreeMap;

/// Number of bytes in an extent, and of logical blocks and cells in it.
pub(super) const EXTENT: u64 = 4096;
pub(super) const CELLS: usize = EXTENT as usize / CELL;
const BLOCK_CELLS: usize = 512 / CELL;

/// The effect that a request in progress will have.
pub(super) enum Asked {
    Read {
        from: usize,
        expect: Expect,
    },
    Change {
        from: usize,
        to: usize,
        version: u64,
    },
    /// A change with FUA.
    Forced {
        from: usize,
        to: usize,
        version: u64,
    },
    Flush {
        moment: u64,
    },
}

/// The shape of the volume of a scene: number of extents, slots by tier, journal blocks.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    pub(super) extents: u32,
    pub(super) slots: Vec<u32>,
    pub(super) ring: u32,
    /// Most pages of a list of lost data.
    pub(super) list_pages: u16,
    /// All members but the last one are of one tier.
    pub(super) one_fast_tier: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            kind: Kind::Tiering,
            extents: 24,
            slots: vec![10, 20],
            ring: 64,
            list_pages: 1024,
            one_fast_tier: false,
        }
    }
}

/// See the module.
pub(super) struct Stage {
    pub(super) sb: Superblock,
    pub(super) mutant: Option<Mutant>,
    /// The members, while they are not served.
    pub(super) disks: Vec<Disk>,
    pub(super) engine: Option<Engine>,
    pub(super) world: Option<Hostile>,
    /// The superblock with which the present session began.
    pub(super) session: Option<Superblock>,
    pub(super) run: Loop,
    pub(super) truth: Truth,
    pub(super) policy: ScriptedPolicy,
    pub(super) params: Params,
    pub(super) asked: BTreeMap<Tag, Asked>,
    pub(super) answers: BTreeMap<Tag, Result<(), IoError>>,
    pub(super) tags: u32,
    pub(super) epochs: u64,
    /// Whether the first member is missing.
    pub(super) gone: bool,
    /// What a server that died has kept.
    pub(super) kept: Option<Kept>,
}

impl Stage {
    /// A new volume, which is being served.
    pub(super) fn new(mutant: Option<Mutant>, shape: &Shape) -> Result<Stage, String> {
        Stage::with(mutant, shape, |_| {})
    }
    /// A new volume with other parameters.
    pub(super) fn with(
        mutant: Option<Mutant>,
        shape: &Shape,
        set: impl FnOnce(&mut Params),
    ) -> Result<Stage, String> {
        let last = shape.slots.len() - 1;
        let fast = shape.slots[..last].iter().sum();
        let recorded = shape.kind.recorded(shape.extents, fast);
        let area = MetaArea {
            ring_blocks: shape.ring,
            ..MetaArea::of(shape.kind, recorded, fast, 8, 0)
        };
        let entry = |(i, &slots): (usize, &u32)| MemberEntry {
            uuid: [i as u8 + 1; 16],
            tier: TierId(if shape.one_fast_tier {
                u8::from(i == last)
            } else {
                i as u8
            }),
            slots,
            ..MemberEntry::default()
        };
        let members: Vec<MemberEntry> = shape.slots.iter().enumerate().map(entry).collect();
        let form = superblock::Shape {
            kind: shape.kind,
            extent_shift: 12,
            block_shift: 9,
            extents: shape.extents,
            area,
        };
        let mut sb = Superblock {
            policy: String::from("scripted"),
            name: String::from("stage"),
            ..Superblock::new([0x53; 16], 1, form, members)
        };
        sb.head_blocks = sb.head_blocks.min(5);
        sb.list_pages = sb.list_pages.min(shape.list_pages);
        let sb = sb.placed(4096);
        let mut disks = new_disks(&sb);
        format(&mut Disks::of(&mut disks), &sb).map_err(|e| format!("format: {e:?}"))?;
        let mut stage = Stage {
            truth: Truth::new(u64::from(shape.extents) * EXTENT),
            sb,
            mutant,
            disks,
            engine: None,
            world: None,
            session: None,
            run: Loop::new(),
            policy: ScriptedPolicy::new(Uses::Both),
            params: Params {
                stage_blocks: 64,
                piece_blocks: 1,
                pass_discards: false,
                counter_every: None,
                end_with_checkpoint: true,
                mutant,
                ..Params::default()
            },
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            tags: 0,
            epochs: 0x100,
            gone: false,
            kept: None,
        };
        set(&mut stage.params);
        stage.open()?;
        Ok(stage)
    }

    // The policy.

    /// The first homes of these extents will be on the fastest tier.
    pub(super) fn high(&self, extents: impl IntoIterator<Item = u32>) {
        self.policy.with(|w| w.high.extend(extents));
    }
    pub(super) fn write_to(&self, to: WriteTo) {
        self.policy.with(|w| w.write = to);
    }
    pub(super) fn read_sooner(&self) {
        self.policy.with(|w| w.reads_sooner = true);
    }
    pub(super) fn uses(&self, uses: Uses) {
        self.policy.with(|w| w.uses = uses);
    }
    /// Lets the policy propose this action, and runs the engine until nothing more happens.
    pub(super) fn propose(&mut self, action: Action) -> Result<(), String> {
        self.policy.with(|w| w.wanted.push(action));
        self.tick();
        self.pump()
    }
    /// The same for several actions that are proposed at once.
    pub(super) fn propose_all(&mut self, actions: Vec<Action>) -> Result<(), String> {
        self.policy.with(|w| w.wanted.extend(actions));
        self.tick();
        self.pump()
    }
    pub(super) fn allocate(&mut self, e: u32) -> Result<(), String> {
        let (extent, to) = (ExtentId(e), TierId(0));
        self.propose(Action::Allocate { extent, to })
    }
    pub(super) fn clean(&mut self, e: u32) -> Result<(), String> {
        let extent = ExtentId(e);
        self.propose(Action::Clean { extent })
    }

    // Places.

    pub(super) fn is_ring(&self) -> impl Fn(&DeviceOp) -> bool + Clone + use<> {
        let layout = self.sb.layout();
        move |op| {
            let ring = |c: Carrier| c.ring_at..c.ring_at + layout.area.ring_bytes();
            let in_ring = |c: Carrier| c.member == op.member && ring(c).contains(&op.offset);
            changes(op) && layout.carriers().any(in_ring)
        }
    }
    /// Matches a write to block `block` (0: the header) of either checkpoint region.
    pub(super) fn is_region(&self, block: u64) -> impl Fn(&DeviceOp) -> bool + Clone + use<> {
        let (layout, at) = (self.sb.layout(), block * BLOCK as u64);
        move |op| {
            let here = |c: Carrier, r| layout.region_offset(c, r) + at == op.offset;
            let any = |c: Carrier| c.member == op.member && (here(c, 0) || here(c, 1));
            changes(op) && layout.carriers().any(any)
        }
    }
    pub(super) fn is_data(&self) -> impl Fn(&DeviceOp) -> bool + Clone + use<> {
        let is_slot = self.is_slot();
        move |op| changes(op) && is_slot(op.member, op.offset)
    }
    /// Matches a byte of a member that belongs to a slot.
    pub(super) fn is_slot(&self) -> impl Fn(MemberId, u64) -> bool + Clone + use<> {
        let sb = self.sb.clone();
        move |m, offset| {
            let (entry, stash) = (&sb.members[usize::from(m.0)], sb.stash(m));
            let stashed = stash.at..stash.at + u64::from(stash.slots) * EXTENT;
            let from = entry.data_offset + u64::from(stash.slots) * EXTENT;
            let to = entry.data_offset + u64::from(entry.slots) * EXTENT;
            (from..to).contains(&offset) || (stash.slots > 0 && stashed.contains(&offset))
        }
    }

    // Time.

    pub(super) fn both(&mut self) -> Option<(&mut Engine, &mut Hostile, &mut Loop)> {
        let (e, w) = (self.engine.as_mut()?, self.world.as_mut()?);
        Some((e, w, &mut self.run))
    }
    fn tick(&mut self) {
        if let Some((engine, world, run)) = self.both() {
            let now = isotherm_core::World::now(world);
            run.call(engine, world, |e, out| e.tick(now, out));
        }
    }
    /// From now on `script` decides how operations end.
    pub(super) fn script(&mut self, script: impl Fn(&DeviceOp) -> Fate + 'static) {
        if let Some(w) = &mut self.world {
            w.script = Some(Box::new(script));
        }
    }
    /// From now on operations for which `which` is true do not end.
    pub(super) fn hold(&mut self, which: impl Fn(&DeviceOp) -> bool + 'static) {
        self.script(move |op| if which(op) { Fate::Hold } else { Fate::Go });
    }
    /// From now on all operations succeed.
    pub(super) fn release(&mut self) -> Result<(), String> {
        self.script(|_| Fate::Go);
        self.pump()
    }
    /// Runs the engine and the world until nothing more happens. The time does not advance.
    pub(super) fn pump(&mut self) -> Result<(), String> {
        for _ in 0..100_000 {
            self.collect_replies()?;
            let Some((engine, world, run)) = self.both() else {
                return Ok(());
            };
            let now = isotherm_core::World::now(world);
            if world.next_scripted().is_some() {
                let wake = engine.next_wake().filter(|&t| t <= now);
                run.turn(engine, world, wake, None);
            } else if engine.next_wake().is_some_and(|t| t <= now) {
                let before = world.in_progress().count();
                run.call(engine, world, |e, out| e.tick(now, out));
                if world.in_progress().count() == before && world.next_scripted().is_none() {
                    return self.collect_replies();
                }
            } else {
                return Ok(());
            }
        }
        Err(String::from("the scene does not come to rest"))
    }
    /// Advances the time by `t`.
    pub(super) fn pass(&mut self, t: Nanos) -> Result<(), String> {
        if let Some(w) = &mut self.world {
            w.pass(t);
        }
        self.tick();
        self.pump()
    }
    /// Whether a matching operation is in progress.
    pub(super) fn is_in_flight(&self, which: impl Fn(&DeviceOp) -> bool) -> bool {
        let world = self.world.as_ref();
        world.is_some_and(|w| w.in_progress().any(|op| which(&op)))
    }

    // Requests.

    fn collect_replies(&mut self) -> Result<(), String> {
        let Some(world) = &mut self.world else {
            return Ok(());
        };
        for (tag, result) in world.take_replies() {
            let data = world.take(tag);
            match self.asked.remove(&tag) {
                Some(Asked::Read { from, expect }) if result.is_ok() => {
                    self.truth.check_read(from, &expect, &data)?;
                }
                Some(Asked::Change { from, to, version }) => {
                    self.truth.answered(from, to, version, result.is_ok());
                }
                Some(Asked::Forced { from, to, version }) => {
                    self.truth.answered(from, to, version, result.is_ok());
                    if result.is_ok() {
                        self.truth.forced(from, to);
                    }
                }
                Some(Asked::Flush { moment }) if result.is_ok() => self.truth.flushed(moment),
                _ => {}
            }
            self.answers.insert(tag, result);
        }
        Ok(())
    }
    pub(super) fn submit(&mut self, req: Request, asked: Asked) -> Result<Tag, String> {
        let tag = req.tag;
        self.asked.insert(tag, asked);
        if let Some((engine, world, run)) = self.both() {
            run.tell(engine, world, Event::Arrived(req));
        }
        self.pump()?;
        Ok(tag)
    }
    pub(super) fn tag(&mut self) -> Tag {
        self.tags += 1;
        Tag(self.tags)
    }
    pub(super) fn change(
        &mut self,
        op: RequestOp,
        e: u32,
        blocks: (u32, u32),
    ) -> Result<Tag, String> {
        self.change_with(op, e, blocks, false)
    }
    fn change_with(
        &mut self,
        op: RequestOp,
        e: u32,
        (a, z): (u32, u32),
        fua: bool,
    ) -> Result<Tag, String> {
        let tag = self.tag();
        let first = e as usize * CELLS;
        let from = first + a as usize * BLOCK_CELLS;
        let to = first + z as usize * BLOCK_CELLS;
        let version = self.truth.issue(
            from,
            to,
            match op {
                RequestOp::Write => Change::Write,
                RequestOp::Discard if self.sb.kind == Kind::Cache => Change::Forget,
                _ => Change::Zero,
            },
        );
        let payload = (op == RequestOp::Write).then(|| {
            (from..to)
                .flat_map(|c| truth::content(c, version))
                .collect()
        });
        let len = (to - from) * CELL;
        if let Some(w) = &mut self.world {
            w.give(tag, len, 0, payload);
        }
        let req = Request {
            tag,
            op,
            offset: (from * CELL) as u64,
            len: len as u32,
            fua,
            class: 0,
        };
        let asked = if fua {
            Asked::Forced { from, to, version }
        } else {
            Asked::Change { from, to, version }
        };
        self.submit(req, asked)
    }
    /// Issues a write of some blocks of an extent.
    pub(super) fn send(&mut self, e: u32, blocks: (u32, u32)) -> Result<Tag, String> {
        self.change(RequestOp::Write, e, blocks)
    }
    /// Writes some blocks of an extent, and waits for the answer.
    pub(super) fn write(&mut self, e: u32, blocks: (u32, u32)) -> Result<(), String> {
        let tag = self.send(e, blocks)?;
        self.answered(tag)
    }
    /// Issues a write of some blocks of an extent with FUA.
    pub(super) fn send_forced(&mut self, e: u32, blocks: (u32, u32)) -> Result<Tag, String> {
        self.change_with(RequestOp::Write, e, blocks, true)
    }
    /// Writes some blocks of an extent with FUA, and waits for the answer.
    pub(super) fn write_forced(&mut self, e: u32, blocks: (u32, u32)) -> Result<(), String> {
        let tag = self.send_forced(e, blocks)?;
        self.answered(tag)
    }
    pub(super) fn send_discard(&mut self, e: u32, blocks: (u32, u32)) -> Result<Tag, String> {
        self.change(RequestOp::Discard, e, blocks)
    }
    pub(super) fn discard(&mut self, e: u32, blocks: (u32, u32)) -> Result<(), String> {
        let tag = self.send_discard(e, blocks)?;
        self.answered(tag)
    }
    /// Issues a FLUSH.
    pub(super) fn send_flush(&mut self) -> Result<Tag, String> {
        let (tag, moment) = (self.tag(), self.truth.moment());
        let req = Request {
            tag,
            op: RequestOp::Flush,
            offset: 0,
            len: 0,
            fua: false,
            class: 0,
        };
        self.submit(req, Asked::Flush { moment })
    }
    pub(super) fn flush(&mut self) -> Result<(), String> {
        let tag = self.send_flush()?;
        self.answered(tag)
    }
    pub(super) fn read(&mut self, e: u32) -> Result<(), String> {
        let tag = self.send_read(e)?;
        self.answered(tag)
    }
    pub(super) fn send_read(&mut self, e: u32) -> Result<Tag, String> {
        let tag = self.tag();
        let from = e as usize * CELLS;
        if let Some(w) = &mut self.world {
            w.give(tag, EXTENT as usize, 0, None);
        }
        let req = Request {
            tag,
            op: RequestOp::Read,
            offset: u64::from(e) * EXTENT,
            len: EXTENT as u32,
            fua: false,
            class: 0,
        };
        let expect = self.truth.expect(from, from + CELLS);
        self.submit(req, Asked::Read { from, expect })
    }
    /// The answer to a request, if there is one.
    pub(super) fn answer(&self, tag: Tag) -> Option<Result<(), IoError>> {
        self.answers.get(&tag).copied()
    }
    fn answered(&self, tag: Tag) -> Result<(), String> {
        match self.answer(tag) {
            Some(Ok(())) => Ok(()),
            other => Err(format!("a request of the scene ended with {other:?}")),
        }
    }
}

fn changes(op: &DeviceOp) -> bool {
    matches!(op.kind, OpKind::Write | OpKind::WriteZeroes)
}

/// For [`Stage::lose_power`]: no unflushed write has reached the medium.
pub(super) fn nothing(_: MemberId, _: u64) -> bool {
    false
}

/// For [`Stage::lose_power`]: every unflushed write has reached the medium.
pub(super) fn everything(_: MemberId, _: u64) -> bool {
    true
}

/// A stage with a volume of the usual shape.
pub(super) fn stage(mutant: Option<Mutant>) -> Result<Stage, String> {
    Stage::new(mutant, &Shape::default())
}
