//! Metadata is damaged while a volume is at rest: bits flip, blocks are lost, a ring is zeroed, on one side or on both. What opens
//! shows what was flushed; what cannot is refused. Never is anything lost in silence, and never another extent's bytes shown.

use super::Rng;
use super::disk::{Disk, Disks};
use super::rollback::{check, own};
use super::run::{Run, Scenario, Shape, find, read_all};
use super::world::{Faults, Hostile};
use isotherm_core::engine::{Mutant, Params};
use isotherm_core::store::open::Mode;
use isotherm_core::store::{BLOCK, OpenError, Opened, journal, open};
use isotherm_core::{Engine, MemberId, policy};

/// How damages ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Nothing that is in use was hit.
    pub unharmed: u64,
    /// Mended from another copy, and said.
    pub mended: u64,
    /// Refused, with a reason.
    pub refused: u64,
    /// Opened after a loss was accepted, whose extents were named.
    pub accepted: u64,
    /// What was hit was a journal block of which nobody can tell that it had been durable, and it is missing now.
    pub unprovable: u64,
}

impl Damage {
    /// Both together.
    #[must_use]
    pub fn and(self, o: Damage) -> Damage {
        Damage {
            unharmed: self.unharmed + o.unharmed,
            mended: self.mended + o.mended,
            refused: self.refused + o.refused,
            accepted: self.accepted + o.accepted,
            unprovable: self.unprovable + o.unprovable,
        }
    }
}

/// Damage a used volume at `seed`, and see.
///
/// # Errors
/// Something was lost in silence, somebody saw another extent's bytes, or a mended volume is not whole.
pub fn damage(seed: u64, mutant: Option<Mutant>) -> Result<Damage, String> {
    let mut s = Scenario {
        lives: 3,
        // Now and then enough for the ring to come round: no older checkpoint will do then.
        requests: if seed % 12 == 5 {
            900
        } else {
            60 + seed % 3 * 100
        },
        ring: Some(64),
        copies: seed % 4 == 1,
        shape: [Shape::Small, Shape::Roomy, Shape::Large, Shape::ThreeTiers][seed as usize / 4 % 4],
        ..Scenario::new(seed)
    };
    s.mutant = mutant;
    harmed(s, Part::Any)
}

/// A block of the newest checkpoint is gone on both sides, and no older one is left: what it told is lost, to whoever accepts that and
/// to nobody else.
///
/// # Errors
/// As for [`damage`].
pub fn lost_checkpoint(seed: u64, mutant: Option<Mutant>) -> Result<Damage, String> {
    let s = Scenario {
        lives: 3,
        requests: 200 + seed % 3 * 100,
        ring: Some(if seed.is_multiple_of(4) { 12 } else { 6 }),
        copies: seed % 4 == 1,
        shape: [Shape::Large, Shape::Roomy, Shape::Small, Shape::ThreeTiers][seed as usize % 4],
        mutant,
        ..Scenario::new(seed)
    };
    harmed(s, Part::Checkpoint)
}

/// The newest checkpoint of a volume that was closed is lost on both sides. If an older one will do, the volume lives on from it, crashes
/// at any moment and is recovered: what it was before it knows exactly, and the blocks of the lost one never count again.
///
/// # Errors
/// As for [`damage`].
pub fn older_checkpoint(seed: u64, mutant: Option<Mutant>) -> Result<Damage, String> {
    let s = Scenario {
        lives: 5,
        end_well: 2,
        requests: 50 + seed % 4 * 20,
        ring: Some(12 + seed as u32 % 3 * 20),
        copies: seed.is_multiple_of(2),
        shape: [Shape::Roomy, Shape::Small, Shape::ThreeTiers, Shape::Large][seed as usize / 2 % 4],
        mutant,
        ..Scenario::new(seed)
    };
    let (mut run, mut disks) = Run::begin(s)?;
    for life in 0..2 {
        disks = run.live(disks, life)?;
    }
    let whole = attempt(&run, &mut disks.clone(), Mode::ReadOnly, mutant)
        .map_err(|e| format!("before any damage: {e}"))?;
    let mut rng = Rng::new(seed ^ 0x01d);
    let mut harm = Harm {
        run: &run,
        whole: &whole,
        rng: &mut rng,
        log: Vec::new(),
    };
    harm.lose_newest(&mut disks);
    if attempt(&run, &mut disks.clone(), Mode::ReadOnly, mutant).is_err() {
        return Ok(Damage {
            refused: 1,
            ..Damage::default()
        });
    }
    for life in 2..5 {
        disks = run.live(disks, life)?;
        if disks.is_empty() {
            break;
        }
    }
    Ok(Damage {
        mended: 1,
        ..Damage::default()
    })
}

/// The primary loses the newest blocks of its journal, and no counter can tell that they had been durable: what they told may be lost,
/// but nobody sees another extent's bytes.
///
/// # Errors
/// As for [`damage`].
pub fn lost_tail(seed: u64, mutant: Option<Mutant>) -> Result<Damage, String> {
    let s = Scenario {
        lives: 3,
        requests: 200,
        ring: Some(64),
        copies: seed % 4 == 1,
        shape: [
            Shape::Small,
            Shape::ThreeTiers,
            Shape::TwoFast,
            Shape::Roomy,
        ][seed as usize % 4],
        mutant,
        ..Scenario::new(seed)
    };
    harmed(s, Part::Tail)
}

/// What is to be spoilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Any,
    Checkpoint,
    Tail,
}

/// Use a volume, harm that part of it while it is at rest, and see.
fn harmed(s: Scenario, part: Part) -> Result<Damage, String> {
    let (seed, mutant) = (s.seed, s.mutant);
    let (mut run, mut disks) = Run::begin(s)?;
    for life in 0..=(seed as u32 % 2) {
        disks = run.live(disks, life)?;
    }
    let mut rng = Rng::new(seed ^ 0xdada);
    for d in &mut disks {
        d.crash(&mut rng, &[]);
    }
    let whole = attempt(&run, &mut disks.clone(), Mode::ReadOnly, mutant)
        .map_err(|e| format!("before any damage: {e}"))?;
    let mut how = Harm {
        run: &run,
        whole: &whole,
        rng: &mut rng,
        log: Vec::new(),
    };
    let tail = match part {
        Part::Any => how.inflict(&mut disks),
        Part::Checkpoint => how.lose_checkpoint(&mut disks),
        Part::Tail => how.lose_tail(&mut disks),
    };
    let log = how.log.join(", ");
    let was = (
        whole.checkpoint.start.next_seq,
        whole.report.proven,
        whole.tip.next_seq,
    );
    judge(&mut run, disks, tail, mutant).map_err(|e| {
        format!(
            "{e}; journal from {} proven to {} end {}; spoilt {log}",
            was.0, was.1, was.2
        )
    })
}

/// Was a block of the journal hit of which nobody can prove that it had been durable on the primary?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    Whole,
    /// On the primary: what it told may be lost, and nobody else's bytes may be shown.
    Hit,
    /// And the mirror lost a block that it had in common with the primary: nobody knows which slots changed hands.
    HitTwice,
    /// A block that had been proven was hit, up to this one, and so was a counter, which may have been the proof: as `HitTwice` where
    /// what is left does not prove it.
    Proof(u64),
}

fn judge(
    run: &mut Run,
    mut disks: Vec<Disk>,
    tail: Tail,
    mutant: Option<Mutant>,
) -> Result<Damage, String> {
    let mode = Mode::ReadWrite { epoch: 0xda };
    match attempt(run, &mut disks, mode, mutant) {
        Ok(o) => opened(run, disks, o, tail, mutant),
        Err(OpenError::CheckpointLost { .. }) => lossy(run, disks, mutant),
        Err(e) => {
            let _ = e.to_string();
            Ok(Damage {
                refused: 1,
                ..Damage::default()
            })
        }
    }
}

fn attempt(
    run: &Run,
    disks: &mut [Disk],
    mode: Mode,
    mutant: Option<Mutant>,
) -> Result<Opened, OpenError> {
    let found = find(disks, &run.sb);
    let fuse = None;
    open(
        &mut Disks {
            disks,
            fuse,
            mutant,
        },
        &found,
        mode,
    )
}

/// It opened: all of it must be true, now and at the next opening, which finds nothing to mend.
fn opened(
    run: &mut Run,
    disks: Vec<Disk>,
    o: Opened,
    tail: Tail,
    mutant: Option<Mutant>,
) -> Result<Damage, String> {
    let mended = u64::from(!o.report.repairs.is_empty());
    let tail = match tail {
        Tail::Proof(seq) if o.report.proven < seq => Tail::HitTwice,
        Tail::Proof(_) => Tail::Whole,
        other => other,
    };
    let mut after = disks.clone();
    let again = attempt(run, &mut after, Mode::ReadWrite { epoch: 0xdb }, mutant)
        .map_err(|e| format!("after it was mended: {e}"))?;
    if !again.report.repairs.is_empty() {
        return Err(format!("mended, and yet {:?}", again.report.repairs));
    }
    let mut wrong = None;
    let mut truth = run.truth.clone();
    for (i, data) in contents(disks, o)?.iter().enumerate() {
        if let Err(e) = check(&mut truth, i, data) {
            // A slot that a lost block let go of may be somebody else's already, if no mirror knows.
            if tail != Tail::HitTwice {
                own(i, data).map_err(|e| format!("extent {i}: {e}"))?;
            }
            wrong = wrong.or(Some(e));
        }
    }
    match wrong {
        Some(e) if tail == Tail::Whole => Err(format!("lost in silence: {e}")),
        Some(_) => Ok(Damage {
            unprovable: 1,
            ..Damage::default()
        }),
        None => Ok(Damage {
            mended,
            unharmed: 1 - mended,
            ..Damage::default()
        }),
    }
}

/// A block of the checkpoint is gone on both sides: whoever accepts that loses what is named, and nothing else.
fn lossy(run: &Run, mut disks: Vec<Disk>, mutant: Option<Mutant>) -> Result<Damage, String> {
    let mode = Mode::Degraded {
        epoch: 0xda,
        accept_loss: true,
    };
    let o = match attempt(run, &mut disks, mode, mutant) {
        Ok(o) => o,
        Err(e @ OpenError::CheckpointLost { .. }) => {
            return Err(format!("loss accepted, yet: {e}"));
        }
        // The journal is damaged, too.
        Err(_) => {
            return Ok(Damage {
                refused: 1,
                ..Damage::default()
            });
        }
    };
    let lost = o.report.lost_extents.clone();
    let mut after = disks.clone();
    let again = attempt(run, &mut after, Mode::ReadWrite { epoch: 0xdb }, mutant)
        .map_err(|e| format!("after a loss was accepted: {e}"))?;
    if !again.report.repairs.is_empty() || !again.report.lost_extents.is_empty() {
        return Err(format!("accepted, and yet {:?}", again.report));
    }
    let mut truth = run.truth.clone();
    for (i, data) in contents(disks, o)?.iter().enumerate() {
        own(i, data).map_err(|e| format!("extent {i}: {e}"))?;
        let named = |(a, z): &(isotherm_core::ExtentId, isotherm_core::ExtentId)| {
            (a.0..z.0).contains(&(i as u32))
        };
        if !lost.iter().any(named) {
            check(&mut truth, i, data).map_err(|e| format!("lost, and not named: {e}"))?;
        }
    }
    Ok(Damage {
        accepted: 1,
        ..Damage::default()
    })
}

fn contents(disks: Vec<Disk>, o: Opened) -> Result<Vec<Vec<u8>>, String> {
    let (start, volume) = (o.time_base, o.space.geo.volume_bytes());
    let linear = Box::new(policy::Linear::new("linear"));
    let mut engine = Engine::new(o, linear, Params::default());
    let mut world = Hostile::new(disks, Rng::new(4), Faults::default(), 4096, start);
    let all = read_all(&mut engine, &mut world, volume)?.into_iter();
    all.map(|r| r.map_err(|e| format!("a read fails: {e:?}")))
        .collect()
}

struct Harm<'a> {
    run: &'a Run,
    /// What the volume was.
    whole: &'a Opened,
    rng: &'a mut Rng,
    /// What was hit.
    log: Vec<String>,
}

impl Harm<'_> {
    /// One to three damages.
    fn inflict(&mut self, disks: &mut [Disk]) -> Tail {
        let layout = self.run.sb.layout();
        let mirror = layout.mirror.map_or(0, |m| usize::from(m.0));
        let before = self.shared(disks, mirror);
        let (mut hit_tail, mut proof, mut counter) = (false, 0, false);
        if self.rng.one_in(6) {
            // The checkpoint alone, on both sides.
            let h = self.whole.checkpoint;
            let region = layout.area.region_offset((h.number % 2) as u8) / BLOCK as u64;
            let b = region + 1 + self.rng.below(u64::from(h.blocks.max(1)));
            for m in [0, mirror] {
                self.log.push(format!("member {m} block {b}"));
                self.spoil(&mut disks[m], b);
            }
            return Tail::Whole;
        }
        for _ in 0..=self.rng.below(3) {
            let member = [0, mirror, self.rng.below(disks.len() as u64) as usize]
                [self.rng.below(3) as usize];
            let members = if self.rng.one_in(4) {
                vec![0, mirror]
            } else {
                vec![member]
            };
            let blocks = self.blocks(member);
            for m in members {
                // What is metadata on one member may be data on another.
                let end = self.run.sb.members[m].data_offset / BLOCK as u64;
                let blocks: Vec<u64> = blocks.iter().copied().filter(|&b| b < end).collect();
                self.log.push(format!("member {m} blocks {blocks:?}"));
                for &b in &blocks {
                    let seq = self.seq(&disks[m], b).unwrap_or(0);
                    hit_tail |= m == 0 && self.is_tail(seq);
                    proof = proof.max(seq.min(self.whole.report.proven));
                    counter |= (2..4).contains(&b);
                }
                // All of them first: a run of blocks is one damage.
                for &b in &blocks {
                    self.spoil(&mut disks[m], b);
                }
            }
        }
        let gone = |seq: &u64| ![0, mirror].iter().any(|&m| self.has(&disks[m], *seq));
        match hit_tail {
            false if counter && proof > 0 => Tail::Proof(proof),
            false => Tail::Whole,
            true if before.iter().any(gone) => Tail::HitTwice,
            true => Tail::Hit,
        }
    }

    /// One block of the newest checkpoint on both sides, and what is left of the older one.
    fn lose_checkpoint(&mut self, disks: &mut [Disk]) -> Tail {
        let layout = self.run.sb.layout();
        let mirror = layout.mirror.map_or(0, |m| usize::from(m.0));
        let h = self.whole.checkpoint;
        let at = |number: u64| layout.area.region_offset((number % 2) as u8) / BLOCK as u64;
        let b = at(h.number) + 1 + self.rng.below(u64::from(h.blocks.max(1)));
        for m in [0, mirror] {
            self.log.push(format!("member {m} block {b}"));
            for b in [b, at(h.number + 1)] {
                self.spoil(&mut disks[m], b);
            }
        }
        Tail::Whole
    }

    /// Something of the newest checkpoint, on both sides; its header stays now and then.
    fn lose_newest(&mut self, disks: &mut [Disk]) {
        let layout = self.run.sb.layout();
        let mirror = layout.mirror.map_or(0, |m| usize::from(m.0));
        let h = self.whole.checkpoint;
        let region = layout.area.region_offset((h.number % 2) as u8) / BLOCK as u64;
        let b = if h.blocks == 0 || self.rng.one_in(4) {
            region
        } else {
            region + 1 + self.rng.below(u64::from(h.blocks))
        };
        for m in [0, mirror] {
            self.spoil(&mut disks[m], b);
        }
    }

    /// The newest blocks of the primary's journal: what the mirror lacks, and now and then its newest block.
    fn lose_tail(&mut self, disks: &mut [Disk]) -> Tail {
        let layout = self.run.sb.layout();
        let mirror = layout.mirror.map_or(0, |m| usize::from(m.0));
        let (start, end) = (
            self.whole.checkpoint.start.next_seq,
            self.whole.tip.next_seq,
        );
        let known = (start..end).take_while(|&seq| self.has(&disks[mirror], seq));
        let lacked = start + known.count() as u64;
        let from = (lacked - u64::from(lacked > start && self.rng.one_in(3))).min(end);
        for seq in from..end {
            let at = layout.area.ring_offset(seq);
            self.log.push(format!("journal block {seq}"));
            self.spoil(&mut disks[0], at / BLOCK as u64);
        }
        Tail::Hit
    }

    /// Does this member have that block of the journal?
    fn has(&self, disk: &Disk, seq: u64) -> bool {
        let at = self.run.sb.layout().area.ring_offset(seq);
        self.seq(disk, at / BLOCK as u64) == Some(seq)
    }

    /// Blocks of the journal that primary and mirror have.
    fn shared(&self, disks: &[Disk], mirror: usize) -> Vec<u64> {
        let all = self.whole.checkpoint.start.next_seq..self.whole.tip.next_seq;
        all.filter(|&seq| [0, mirror].iter().all(|&m| self.has(&disks[m], seq)))
            .collect()
    }

    /// Which blocks to spoil.
    fn blocks(&mut self, member: usize) -> Vec<u64> {
        let area = self.run.sb.layout().area;
        let block = BLOCK as u64;
        let (start, end) = (
            self.whole.checkpoint.start.next_seq,
            self.whole.tip.next_seq,
        );
        let region = area.region_offset((self.whole.checkpoint.number % 2) as u8) / block;
        match self.rng.below(10) {
            0 => vec![0],
            1 => vec![self.run.sb.copy_offset(MemberId(member as u8)) / block],
            2 => vec![2 + self.rng.below(2)],
            3 => vec![region],
            4 | 5 => vec![
                region
                    + 1
                    + self
                        .rng
                        .below(u64::from(self.whole.checkpoint.blocks.max(1))),
            ],
            // The ring.
            6 => (4..4 + u64::from(area.ring_blocks)).collect(),
            7 => {
                let at = start + self.rng.below((end - start).max(1));
                (0..=self.rng.below(6))
                    .map(|i| area.ring_offset(at + i) / block)
                    .collect()
            }
            _ => vec![area.ring_offset(start + self.rng.below((end - start).max(1))) / block],
        }
    }

    /// Which block of the journal this is, if it is one.
    fn seq(&self, disk: &Disk, b: u64) -> Option<u64> {
        let data = disk.get(b * BLOCK as u64, BLOCK)?;
        journal::decode(data, &self.run.sb.uuid).map(|h| h.seq)
    }

    /// Is this a block of the journal that was not durable for certain?
    fn is_tail(&self, seq: u64) -> bool {
        (self.whole.report.proven + 1..self.whole.tip.next_seq).contains(&seq)
    }

    fn spoil(&mut self, disk: &mut Disk, b: u64) {
        let at = b * BLOCK as u64;
        let Some(old) = disk.get(at, BLOCK) else {
            return;
        };
        let mut new = old.to_vec();
        match self.rng.below(4) {
            0 => new.fill(0),
            1 => {
                let sector = self.rng.below(8) as usize * 512;
                for x in &mut new[sector..sector + 512] {
                    *x = self.rng.draw() as u8;
                }
            }
            2 => {
                let i = self.rng.below(BLOCK as u64) as usize;
                new[i] ^= 1 << self.rng.below(8);
            }
            _ => {
                // Where headers and records are.
                let i = self.rng.below(160) as usize;
                new[i] ^= 1 << self.rng.below(8);
            }
        }
        disk.write_through(at, &new);
    }
}
