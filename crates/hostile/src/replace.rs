//! Replacement of a member between two lives: of a lost cache by an empty device, and of a member that is present by a device that gets
//! its data. The power fails at any moment of it, and the device that was replaced comes back.

use super::disk::{Disk, Disks};
use super::run::{Run, find, open_after};
use isotherm_core::geometry::Kind;
use isotherm_core::store::open::Mode;
use isotherm_core::store::superblock::Room;
use isotherm_core::store::{self, MetaArea, OpenError, Successor, Superblock, open};
use isotherm_core::{MemberId, Slot, store::Opened};

/// Writes and flushes within which a replacement ends; about this many are tried as the moment of a power failure.
const STEPS: u64 = 60;

impl Run {
    /// Replaces a member, sometimes.
    pub(super) fn replace_some(&mut self, disks: &mut [Disk]) -> Result<(), String> {
        let lost = self.gone.is_some();
        if !self.s.replace || !self.rng.one_in(if lost { 2 } else { 3 }) {
            return Ok(());
        }
        let place = if lost {
            0
        } else {
            self.rng.below(disks.len() as u64) as usize
        };
        self.replaced += 1;
        let place = MemberId(place as u8);
        let (room, area) = self.room_of_successor(place, lost);
        let mut successor = Successor {
            place,
            uuid: [100 + self.replaced; 16],
            room,
            hint: String::from("successor"),
            holds_data: !lost,
            area,
        };
        // The device was a member of this volume before, or is new.
        let mut spare = match &self.gone {
            Some(old) if self.rng.one_in(2) && old.len() as u64 >= successor.room.bytes => {
                old.clone()
            }
            // What a cache volume shows of a part that it gets later is what the disk holds there.
            _ if self.sb.is_disk(place) => Disk::zeros(successor.room.bytes as usize),
            _ => Disk::new(successor.room.bytes as usize),
        };
        for _ in 0..self.rng.below(4) {
            let fuse = Some(self.rng.below(STEPS));
            match self.try_replace(disks, &mut successor, &mut spare, fuse) {
                Ok(sb) => return self.replaced(disks, sb, spare),
                Err(OpenError::Media(_)) => {}
                Err(e) => return Err(format!("replacing member {}: {e}", place.0)),
            }
            self.found = false;
            self.left = None;
            for d in disks.iter_mut().chain([&mut spare]) {
                d.crash(&mut self.rng, &[]);
            }
            if find_one(&spare, &successor).is_some() {
                // The successor has a superblock, so it belongs to the volume now.
                let former = std::mem::replace(&mut disks[usize::from(place.0)], spare);
                let sb = self.newest(disks)?;
                return self.replaced(disks, sb, former);
            }
        }
        let sb = self
            .try_replace(disks, &mut successor, &mut spare, None)
            .map_err(|e| format!("replacing member {}: {e}", place.0))?;
        self.replaced(disks, sb, spare)
    }

    /// The places on a successor of the same kind as the member. It may be a larger device, and for a lost cache a smaller one. Also the
    /// metadata areas that it brings.
    fn room_of_successor(&mut self, place: MemberId, lost: bool) -> (Room, Option<MetaArea>) {
        let i = usize::from(place.0);
        let old = self.sb.members[i].clone();
        let fewer = if lost { self.rng.below(4) as u32 } else { 0 };
        let fast = self.sb.members[i].tier < self.sb.members[self.sb.members.len() - 1].tier;
        // (The metadata areas have no room for the copies of more fast slots, and homes of a cache volume have fixed places.)
        let fixed = fast || self.sb.kind == Kind::Cache;
        let more = if fixed { 0 } else { self.rng.below(3) as u32 };
        let slots = old.slots.saturating_sub(fewer).max(3) + more;
        // A cache volume without flash gets flash of any size, which brings its own areas.
        let mut shape = self.sb.clone();
        let anew = lost && self.sb.is_only_flash(place) && self.rng.one_in(2);
        let slots = if anew {
            3 + self.rng.below(2 * u64::from(old.slots)) as u32
        } else {
            slots
        };
        let area = anew.then(|| {
            let copies = self.sb.recorded(slots);
            let area = MetaArea::of(self.sb.kind, copies, slots, 8, 0);
            MetaArea {
                ring_blocks: self.sb.area.ring_blocks + self.rng.below(5) as u32,
                ..area
            }
        });
        shape.area = area.unwrap_or(shape.area);
        let room = if self.sb.is_disk(place) {
            // Its tail is at its own end.
            let least = self.sb.least_bytes(place, slots) + 4096 * self.rng.below(30);
            self.sb.room(place, least, slots)
        } else {
            // The regions of a successor are behind its ring again.
            let head = shape.area.ring_at(shape.layout().copies_on(place)) + 4096;
            let data_offset = if anew {
                head
            } else {
                old.data_offset.max(head)
            };
            Room {
                slots,
                data_offset,
                behind_at: 0,
                bytes: data_offset + u64::from(slots) * 4096,
            }
        };
        (room, area)
    }

    /// Opens the volume, copies the data of the member if that is needed, and replaces it by `spare`. If that gets so far that the spare is
    /// in the place of the member, the two disks have changed places.
    fn try_replace(
        &mut self,
        disks: &mut [Disk],
        successor: &mut Successor,
        spare: &mut Disk,
        fuse: Option<u64>,
    ) -> Result<Superblock, OpenError> {
        let (place, mutant) = (usize::from(successor.place.0), self.s.mutant);
        let (mode, epoch) = (self.mode(), self.next_epoch());
        let found = find(disks, self.s.mutant);
        let mut all = Disks {
            disks,
            fuse,
            mutant,
        };
        let mut opened = open_after(self.left.as_ref(), &mut all, &found, mode)?;
        let settled = store::settle(&mut all, &opened)?;
        let (homes, writes) = store::held_by(&opened.space, successor.place);
        if homes + writes == 0 && self.rng.one_in(2) {
            successor.holds_data = false;
        }
        if successor.holds_data {
            copy_slots(all.disks, &opened, successor, spare);
        }
        std::mem::swap(&mut all.disks[place], spare);
        let done = store::replace(&mut all, &mut opened, &settled, successor, epoch);
        if done.is_err() {
            std::mem::swap(&mut all.disks[place], spare);
        }
        done
    }

    /// The superblock with the newest table of members.
    fn newest(&self, disks: &[Disk]) -> Result<Superblock, String> {
        let found = find(disks, self.s.mutant).into_iter().flatten();
        found
            .max_by_key(|s| s.table_version)
            .ok_or_else(|| String::from("no superblock is left"))
    }

    /// Notes that the volume has a new member, and checks that the former one is not taken back.
    fn replaced(&mut self, disks: &mut [Disk], sb: Superblock, former: Disk) -> Result<(), String> {
        let place = (0..sb.members.len())
            .find(|&i| sb.members[i].uuid != self.sb.members[i].uuid)
            .ok_or("no member was replaced")?;
        self.counts.replaced += 1;
        self.accept = false;
        if std::mem::take(&mut self.found) {
            // Only the process had died, and opening has flushed the members.
            self.truth.flushed(self.truth.moment());
        }
        let former = self.gone.take().unwrap_or(former);
        self.sb = sb;
        let mutant = self.s.mutant;
        let mut with: Vec<Disk> = disks.to_vec();
        with[place] = former;
        let (found, fuse) = (find(&with, self.s.mutant), None);
        let newest = self.sb.table_version;
        if !found.iter().flatten().any(|s| s.table_version == newest) {
            // Power failed when only the successor had the new table. Without it the volume is what it was before.
            return Ok(());
        }
        let epoch = self.next_epoch();
        let mut all = Disks {
            disks: &mut with,
            fuse,
            mutant,
        };
        match open(&mut all, &found, Mode::ReadWrite { epoch }) {
            Err(OpenError::Replaced(m)) if usize::from(m.0) == place => Ok(()),
            other => Err(format!(
                "the replaced member {place} is back: {:?}",
                other.map(|o| o.report)
            )),
        }
    }
}

/// The superblock of the successor, if it has one.
fn find_one(spare: &Disk, successor: &Successor) -> Option<Superblock> {
    let at = |offset| Superblock::decode(spare.get(offset, 4096).unwrap_or(&[]));
    let second = if successor.room.behind_at > 0 {
        successor.room.bytes
    } else {
        successor.room.data_offset
    };
    let sb = store::choose(at(0), at(second - 4096)).ok()?;
    let own = sb.members.get(usize::from(sb.index))?;
    (own.uuid == successor.uuid).then_some(sb)
}

/// Copies the slots in use, durably.
fn copy_slots(disks: &[Disk], opened: &Opened, successor: &Successor, spare: &mut Disk) {
    let place = usize::from(successor.place.0);
    let mut later = opened.superblock.clone();
    successor.room.put(&mut later.members[place]);
    let geos = [&opened.superblock, &later].map(|sb| sb.geometry().expect("a possible shape"));
    for i in store::slots_in_use(&opened.space, successor.place) {
        let [from, to] = [0, 1].map(|k: usize| {
            let first = geos[k].members[place].first_slot;
            geos[k].locate(Slot(first + i)).1
        });
        spare.write(to, disks[place].read(from, 4096));
    }
    spare.flush(spare.stamp());
}
