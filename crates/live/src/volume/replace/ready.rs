//! The new device of a replacement: it is made ready, and gets the data of the member.

use super::Replacement;
use crate::buffers::{ALIGNMENT, Buffer};
use crate::contents;
use crate::copying::transfer::{Places, Source, Transfer, failed};
use crate::copying::{Copied, Unreadable};
use crate::device::Device;
use crate::error::Error;
use crate::volume::claim::refuse_live_member;
use crate::volume::config_error;
use crate::volume::space::reserve_space;
use isotherm_core::store::layout::HEAD_BLOCKS;
use isotherm_core::store::{self, BLOCK, Opened, Successor, Superblock, Unfinished};

/// Largest number of bytes that are copied at once.
const PIECE: usize = 4 << 20;

impl Replacement {
    /// Makes the new device ready for the copy. `devices` are the members.
    ///
    /// # Errors
    /// It has no room, or fails.
    pub(crate) fn begin_copy(&mut self, devices: &[Option<Device>]) -> Result<(), Error> {
        let Some(copied) = &self.copied else {
            return Ok(());
        };
        let (sb, successor) = (copied.superblock.clone(), copied.successor.clone());
        let notes = self.make_ready(&sb, devices, &successor)?;
        if let Some(copied) = &mut self.copied {
            copied.notes = notes;
        }
        Ok(())
    }

    /// Writes durably that the new device is an unfinished copy, and takes older metadata off it.
    fn mark(device: &Device, sb: &Superblock, successor: &Successor) -> Result<(), Error> {
        let Some(mark) = Unfinished::of(sb, successor.place) else {
            return Ok(());
        };
        let mut shape = sb.clone();
        let place = usize::from(successor.place.0);
        successor.room.put(&mut shape.members[place]);
        let second = shape.copy_offset(successor.place);
        let mut block = Buffer::new(0, BLOCK as u32, ALIGNMENT as u32);
        block[..BLOCK].fill(0);
        let head = (0..HEAD_BLOCKS).map(|b| b * BLOCK as u64);
        let write = || {
            for at in head.chain([second]) {
                device.write_past_cache(&block[..BLOCK], at)?;
            }
            device.sync_data()?;
            block[..BLOCK].copy_from_slice(&mark.encode());
            device.write_past_cache(&block[..BLOCK], 0)?;
            device.sync_data()
        };
        write().map_err(|e: std::io::Error| failed(&device.path, 0, "written", &e))
    }

    /// Gives the new device space for metadata, and takes old contents off it. If data is copied to it, its first block says so. Returns
    /// messages for people.
    pub(super) fn make_ready(
        &mut self,
        sb: &Superblock,
        devices: &[Option<Device>],
        successor: &Successor,
    ) -> Result<Vec<String>, Error> {
        let place = usize::from(successor.place.0);
        let mut shape = sb.clone();
        successor.room.put(&mut shape.members[place]);
        shape.area = successor.area.unwrap_or(shape.area);
        let mut new: Vec<Option<Device>> = shape.members.iter().map(|_| None).collect();
        new[place] = self.device.take();
        let room = reserve_space(&new, &shape, false);
        self.device = new[place].take();
        let room = room?;
        let Some(device) = &mut self.device else {
            return Err(config_error(&self.new, "is a member already"));
        };
        let mut notes = Vec::from_iter(device.note.clone());
        notes.extend(room);
        if device.align > 1 << sb.block_shift {
            device.use_page_cache()?;
        }
        if self.how.force && !device.created {
            refuse_live_member(device, Some((sb, devices)))?;
            contents::erase(device)?;
        }
        if successor.holds_data {
            Replacement::mark(device, sb, successor)?;
        }
        Ok(notes)
    }
}

/// Copies the member's slots that are in use durably; if a copy was `begun`, those that it lacks. Returns the number of bytes.
pub(super) fn copy(
    devices: &[Option<Device>],
    opened: &Opened,
    (from, to, successor): (&Device, &Device, &Successor),
    begun: Option<Copied>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, Error> {
    let places = Places::of(&opened.superblock, successor)?;
    let all = 0..opened.space.geo.extents;
    let used = store::slots_of(&opened.space, successor.place, all).map(|(_, index)| index);
    let lacks = |index: &u32| begun.as_ref().is_none_or(|b| b.lacks(*index));
    let mut slots: Vec<u32> = used.filter(lacks).collect();
    slots.sort_unstable();
    let (source, mut unreadable, before) = match begun {
        Some(b) => (b.source, b.unreadable, b.bytes),
        None => (Source::of(from)?, Unreadable::default(), 0),
    };
    let mut transfer = Transfer::new(&source, to, &places, &mut unreadable, PIECE);
    let total = (slots.len() * places.extent()) as u64;
    let done = transfer.copy_all(&slots, |done| progress(done, total))?;
    transfer.fill(&opened.space, devices)?;
    transfer.flush()?;
    Ok(before + done)
}
