//! Scenes about a device that takes the place of a member.

use super::caches::cache;
use super::stage::{Shape, Stage, nothing, stage};
use crate::disk::{Disk, Disks};
use isotherm_core::engine::Mutant;
use isotherm_core::policy::{Action, WriteTo};
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::store::superblock::Room;
use isotherm_core::store::{self, Carrier, OpenError, Successor, open};
use isotherm_core::{ExtentId, MemberId, Nanos, TierId};

impl Stage {
    /// Puts `spare` into the place of the missing first member, as an empty device.
    pub(super) fn succeed(&mut self, spare: Disk) -> Result<(), String> {
        let loss = Loss::Refused;
        self.succeed_at(0, spare, false, |epoch| Mode::Degraded { epoch, loss })
    }
    /// Puts `spare` into the place of a member, with its data or as an empty device.
    fn succeed_at(
        &mut self,
        place: u8,
        spare: Disk,
        holds_data: bool,
        mode: impl FnOnce(u64) -> Mode,
    ) -> Result<(), String> {
        self.epochs += 2;
        let (found, mutant) = (self.found(), self.mutant);
        let mode = mode(self.epochs - 1);
        let old = &self.sb.members[usize::from(place)];
        let successor = Successor {
            place: MemberId(place),
            uuid: [0x77; 16],
            room: Room {
                slots: old.slots,
                data_offset: old.data_offset,
                behind_at: old.behind_at,
                bytes: old.bytes,
            },
            hint: String::from("successor"),
            holds_data,
            area: None,
        };
        let all = &mut Disks {
            disks: &mut self.disks,
            fuse: None,
            mutant,
        };
        let failed = |e| format!("a member cannot be replaced: {e}");
        let mut opened = open(all, &found, mode).map_err(failed)?;
        let settled = store::settle(all, &opened).map_err(failed)?;
        all.disks[usize::from(place)] = spare;
        self.sb =
            store::replace(all, &mut opened, &settled, &successor, self.epochs).map_err(failed)?;
        self.gone = false;
        Ok(())
    }
}

/// The power fails when the primary's journal is far ahead of the mirror's: it alone states that all copies are clean. The primary is missing
/// afterwards, and the volume goes on without it, from the end of the mirror's journal. Then the former primary comes back as its own
/// successor. Blocks of its ring have higher numbers than those of the volume now, and state that others before them were durable: they must
/// not be taken for the proof that the volume's journal has lost its end.
pub(super) fn former_member_again(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    for e in 1..10 {
        s.write(e, (0, 8))?;
    }
    s.close(None)?;
    s.open()?;
    s.write_to(WriteTo::Copy);
    for e in 1..10 {
        s.allocate(e)?;
        s.write(e, (0, 1))?;
    }
    s.flush()?;
    // The records that these copies are clean again are on the primary alone: one journal block each.
    for e in 1..10 {
        s.clean(e)?;
        s.flush()?;
    }
    s.lose_power(nothing);
    let former = s.disks[0].clone();
    s.gone = true;
    let without = |epoch| Mode::Degraded {
        epoch,
        loss: Loss::Accepted,
    };
    s.try_open(without, None)
        .map_err(|e| format!("without its cache: {e}"))?;
    s.close(None)?;
    s.succeed(former)?;
    s.open()?;
    s.write(12, (0, 8))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.check_contents()
}

/// After the primary of a tiering volume was replaced, its ring is empty. Rounds of the next session are on it, and the first of them on the mirror,
/// which lags; then all of its ring is damaged. Nothing tells what followed.
pub(super) fn ring_of_a_successor_is_lost(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    s.write(1, (0, 8))?;
    s.close(None)?;
    let spare = s.disks[0].clone();
    s.succeed_at(0, spare, true, |epoch| Mode::ReadWrite { epoch })?;
    s.open()?;
    let layout = s.sb.layout();
    let mirror = layout.mirror.ok_or("the scene has no mirror")?;
    let in_mirror = s.is_ring();
    s.write(2, (0, 8))?;
    s.flush()?;
    s.pass(Nanos::from_secs(60))?;
    s.hold(move |op| op.member == mirror.member && in_mirror(op));
    for e in 3..6 {
        s.write(e, (0, 8))?;
        s.flush()?;
    }
    s.lose_power(nothing);
    s.disks[0].corrupt(layout.primary.ring_at, layout.area.ring_bytes() as usize);
    match s.try_open(|epoch| Mode::ReadWrite { epoch }, None) {
        Ok(()) => s.verify(),
        Err(OpenError::JournalEnd { .. }) => Ok(()),
        Err(e) => Err(format!("refused for another reason: {e}")),
    }
}

/// A disk is replaced while flash has data of its own, and then flash is gone before the volume was opened again. The new disk must say which
/// data it lacks.
pub(super) fn disk_before_its_flash_is_lost(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = super::lists::dirty(mutant, |_| {})?;
    let spare = s.disks[1].clone();
    s.succeed_at(1, spare, true, |epoch| Mode::ReadWrite { epoch })?;
    s.gone = true;
    let refused = |epoch| Mode::Degraded {
        epoch,
        loss: Loss::Refused,
    };
    if s.try_open(refused, None).is_ok() {
        return Err(String::from("older data is shown without a word"));
    }
    s.list(None)?;
    s.verify()
}

/// A session writes the blocks of a checkpoint, and loses power before its header. Then the closed volume gets a checkpoint, which has the same
/// number, and power fails while it is written: only headers reach the medium. The blocks of before must not count.
pub(super) fn settled_over_lost_blocks(mutant: Option<Mutant>) -> Result<(), String> {
    let shape = Shape {
        ring: 4,
        ..Shape::default()
    };
    let mut s = Stage::new(mutant, &shape)?;
    s.write(1, (0, 8))?;
    let header = s.is_region(0);
    for e in 2..10 {
        // While a round writes its records, a move is copied. Its record is in the next round, behind the blocks of a checkpoint.
        s.hold(s.is_ring());
        s.write(e, (0, 8))?;
        s.send_flush()?;
        let extent = ExtentId(e - 1);
        let to = TierId(0);
        s.propose(Action::Move { extent, to })?;
        s.hold(header.clone());
        s.pump()?;
        if s.is_in_flight(&header) {
            break;
        }
    }
    if !s.is_in_flight(&header) {
        return Err(String::from("the scene has no checkpoint"));
    }
    // These take the slots that the moves left, which the checkpoint's blocks still name.
    for e in 12..18 {
        s.write(e, (0, 8))?;
    }
    let slot = s.is_slot();
    s.lose_power(slot);
    let layout = s.sb.layout();
    let is_header = |m: usize, at: u64| {
        let region = |c: Carrier, r| layout.region_offset(c, r) == at / 4096 * 4096;
        let mut own = (layout.carriers()).filter(|c| usize::from(c.member.0) == m);
        own.any(|c| region(c, 0) || region(c, 1))
    };
    for fuse in 0..80 {
        let mut t = s.fork();
        t.epochs += 1;
        let (epoch, found) = (t.epochs, t.found());
        let mut all = Disks {
            disks: &mut t.disks,
            fuse: None,
            mutant,
        };
        let opened = store::open(&mut all, &found, Mode::ReadWrite { epoch });
        let opened = opened.map_err(|e| format!("opening: {e}"))?;
        all.fuse = Some(fuse);
        let ended = store::settle(&mut all, &opened).is_ok();
        for (m, d) in t.disks.iter_mut().enumerate() {
            d.settle(&|at| is_header(m, at));
        }
        t.open()?;
        t.verify().map_err(|e| format!("after {fuse} steps: {e}"))?;
        if ended {
            return Ok(());
        }
    }
    Err(String::from("the checkpoint does not end"))
}
