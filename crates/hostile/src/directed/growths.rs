//! Scenes about growths of a cache volume that do not come to their end.

use super::caches::{cache, without_flash};
use super::stage::{Stage, everything, nothing};
use crate::disk::Disks;
use crate::truth::CELL;
use isotherm_core::MemberId;
use isotherm_core::engine::Mutant;
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::store::{self, BLOCK, Growth, OpenError, Superblock, plan_growth};

/// The disk becomes larger by so many blocks before each growth. A tail has ten, so the first two overlap.
const MORE: [usize; 3] = [11, 5, 11];

/// Which unflushed sectors survive a power failure.
type Keep = fn(&Stage, MemberId, u64) -> bool;

/// All, none, those of the volume as it is, those behind it.
const KEEPS: [Keep; 4] = [
    |_, m, at| everything(m, at),
    |_, m, at| nothing(m, at),
    |s, _, at| at < s.sb.members[1].bytes,
    |s, _, at| at >= s.sb.members[1].bytes,
];

/// What is planned from the superblock and the sizes of the devices.
pub(super) type Plan = fn(&Superblock, &[u64]) -> Result<Growth, &'static str>;

impl Stage {
    /// Lets the volume, which is not served, grow to the size of its devices. The power fails after `fuse` changes.
    pub(super) fn grow(&mut self, plan: Plan, fuse: Option<u64>) -> Result<(), OpenError> {
        let mutant = self.mutant;
        let sizes: Vec<u64> = self.disks.iter().map(|d| d.len() as u64).collect();
        for _ in 0..4 {
            self.epochs += 2;
            let (epoch, found) = (self.epochs, self.found());
            let mut all = Disks {
                disks: &mut self.disks,
                fuse: None,
                mutant,
            };
            let (whole, loss) = (Mode::ReadWrite { epoch }, Loss::Refused);
            let alone = Mode::Degraded { epoch, loss };
            let mode = if self.gone { alone } else { whole };
            let mut opened = store::open(&mut all, &found, mode)?;
            let Ok(growth) = plan(&opened.superblock, &sizes) else {
                break;
            };
            let step = growth.first_step(&opened.superblock);
            if step.is_none() && !growth.changes(&opened.superblock) {
                break;
            }
            all.fuse = fuse;
            let next = step.as_ref().unwrap_or(&growth);
            store::grow(&mut all, &mut opened, next, epoch + 1)?;
        }
        Ok(())
    }
}

/// The power fails in a growth, and in another one to another end. The third one comes to its end, and its new part shows nothing of the two.
pub(super) fn abandoned(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    for e in 0..24 {
        s.write(e, (0, 8))?;
    }
    s.close(None)?;
    for keep in KEEPS {
        let mut last = None;
        for (cut, t) in abandoned_after_each_step(&s, MORE[0], keep) {
            grown(t.fork()).map_err(|e| format!("cut at {cut}: {e}"))?;
            last = Some(t);
        }
        let last = last.ok_or("a growth has no step")?;
        for (cut, t) in abandoned_after_each_step(&last, MORE[1], keep) {
            grown(t).map_err(|e| format!("the second one cut at {cut}: {e}"))?;
        }
    }
    Ok(())
}

/// Copies of a volume whose growth was abandoned, after one step more each time, until a member knows of it.
fn abandoned_after_each_step(
    s: &Stage,
    more: usize,
    keep: Keep,
) -> impl Iterator<Item = (u64, Stage)> {
    let mut before = s.fork();
    before.disks[1].grow(more * BLOCK, 0);
    let versions = |s: &Stage| -> Vec<Option<u32>> {
        let version = |sb: Option<Superblock>| sb.map(|sb| sb.table_version);
        s.found().into_iter().map(version).collect()
    };
    (0..).map_while(move |cut| {
        let mut t = before.fork();
        let ended = t.grow(plan_growth, Some(cut)).is_ok();
        t.lose_power(|m, at| keep(&before, m, at));
        let is_old = versions(&t) == versions(&before);
        (!ended && is_old).then_some((cut, t))
    })
}

/// The volume grows, and shows what it held, and zeros.
fn grown(mut s: Stage) -> Result<(), String> {
    s.disks[1].grow(MORE[2] * BLOCK, 0);
    s.grow(plan_growth, None)
        .map_err(|e| format!("growing: {e}"))?;
    let sb = s.found()[1].clone().ok_or("the disk is no member")?;
    if s.gone && !sb.is_absent(MemberId(0)) {
        return Err(String::from("the flash is back"));
    }
    let volume = sb.geometry().map_err(String::from)?.volume_bytes();
    if volume == s.truth.cells() as u64 * CELL as u64 {
        return Err(String::from("the volume has not grown"));
    }
    s.truth.grow(volume);
    if s.gone {
        return without_flash(&mut s);
    }
    s.open()?;
    s.verify()
}

/// A volume that goes on without its flash grows, and the power fails after each step of that.
pub(super) fn of_the_disk_alone(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    for e in 0..24 {
        s.write(e, (0, 8))?;
    }
    s.close(None)?;
    without_flash(&mut s)?;
    s.write(3, (2, 4))?;
    s.close(None)?;
    for keep in KEEPS {
        let mut steps = 0;
        for (cut, t) in abandoned_after_each_step(&s, MORE[0], keep) {
            grown(t).map_err(|e| format!("cut at {cut}: {e}"))?;
            steps += 1;
        }
        if steps == 0 {
            return Err(String::from("a growth has no step"));
        }
    }
    Ok(())
}
