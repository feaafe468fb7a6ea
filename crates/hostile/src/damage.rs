//! Damage to the metadata of a volume that is not being served: bits flip, blocks are lost, a ring is zeroed, on the primary, on the mirror
//! or on both. If the volume opens, it must show all flushed data; otherwise it must be refused. No loss may be silent, and no extent may
//! show another extent's bytes.

use super::Rng;
use super::disk::{Disk, Disks};
use super::ends::read_all;
use super::harm::{Harm, Tail};
use super::rollback::{check, check_bytes};
use super::run::{Run, Scenario, Shape, find};
use super::world::{Faults, Hostile};
use isotherm_core::engine::{Mutant, Params};
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::store::{OpenError, Opened, open};
use isotherm_core::{Engine, policy};

/// Number of cases of damage, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The damage hit nothing that is in use.
    pub unharmed: u64,
    /// The damage was repaired from another copy of the metadata, and reported.
    pub mended: u64,
    /// The volume was refused, with a reason.
    pub refused: u64,
    /// The volume opened after a loss was accepted, and the lost extents were named.
    pub accepted: u64,
    /// The damage hit a journal block that cannot be proved to have been durable, and this block is missing now.
    pub unprovable: u64,
}

impl Damage {
    /// The sum of two results.
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

/// Damages a used volume, and checks the result. Everything follows from `seed`.
///
/// # Errors
/// A loss was silent, an extent showed another extent's bytes, or a repaired volume is not complete.
pub fn damage(seed: u64, mutant: Option<Mutant>) -> Result<Damage, String> {
    let mut s = Scenario {
        lives: 3,
        // Some runs are long enough for the ring to wrap around; then no older checkpoint can be used.
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

/// A block of the newest checkpoint is damaged on primary and mirror, and there is no older checkpoint. If the loss is accepted, the
/// records in that block are lost; otherwise the volume must be refused.
///
/// # Errors
/// The same as for [`damage`].
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

/// The newest checkpoint of a closed volume is damaged on primary and mirror. If an older one can be used, the volume continues from it,
/// crashes at any moment and is recovered. It must have exactly the state before the damage, and blocks of the lost checkpoint must never
/// be used again.
///
/// # Errors
/// The same as for [`damage`].
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

/// The primary loses the newest blocks of its journal, and no counter proves that they had been durable. Their records may be lost, but no
/// extent may show another extent's bytes.
///
/// # Errors
/// The same as for [`damage`].
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

/// The part of the metadata that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Any,
    Checkpoint,
    Tail,
}

/// Uses a volume, damages `part` of its metadata while it is not being served, and checks the result.
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
    let found = find(disks, run.s.mutant);
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

/// Checks a volume that opened: all its data must be correct, now and at the next opening, which must find nothing to repair.
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
            // If the record of the freeing of a slot is lost everywhere, the slot may belong to another extent already.
            if tail != Tail::HitTwice {
                check_bytes(&truth, i, data).map_err(|e| format!("extent {i}: {e}"))?;
            }
            wrong = wrong.or(Some(e));
        }
    }
    match wrong {
        Some(e) if tail == Tail::Whole => Err(format!("lost silently: {e}")),
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

/// Checks a volume of whose checkpoint a block is damaged on primary and mirror. If the loss is accepted, the named extents are lost and
/// nothing else.
fn lossy(run: &Run, mut disks: Vec<Disk>, mutant: Option<Mutant>) -> Result<Damage, String> {
    let mode = Mode::Degraded {
        epoch: 0xda,
        loss: Loss::Accepted,
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
        check_bytes(&truth, i, data).map_err(|e| format!("extent {i}: {e}"))?;
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
