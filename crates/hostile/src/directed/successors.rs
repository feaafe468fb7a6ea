//! Scenes about a device that takes the place of a member.

use super::caches::cache;
use super::stage::{Stage, nothing};
use crate::disk::{Disk, Disks};
use isotherm_core::MemberId;
use isotherm_core::engine::Mutant;
use isotherm_core::policy::WriteTo;
use isotherm_core::store::open::Mode;
use isotherm_core::store::superblock::Room;
use isotherm_core::store::{self, Successor, open};

impl Stage {
    /// Puts `spare` into the place of the missing first member, as an empty device.
    fn succeed(&mut self, spare: Disk) -> Result<(), String> {
        self.epochs += 2;
        let (found, mutant) = (self.found(), self.mutant);
        let mode = Mode::Degraded {
            epoch: self.epochs - 1,
            accept_loss: false,
        };
        let old = &self.sb.members[0];
        let successor = Successor {
            place: MemberId(0),
            uuid: [0x77; 16],
            room: Room {
                slots: old.slots,
                data_offset: old.data_offset,
                behind_at: old.behind_at,
                bytes: old.bytes,
            },
            hint: String::from("successor"),
            holds_data: false,
        };
        let all = &mut Disks {
            disks: &mut self.disks,
            fuse: None,
            mutant,
        };
        let failed = |e| format!("a lost cache cannot be replaced: {e}");
        let mut opened = open(all, &found, mode).map_err(failed)?;
        let settled = store::settle(all, &opened).map_err(failed)?;
        all.disks[0] = spare;
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
        accept_loss: true,
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
