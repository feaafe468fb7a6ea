//! A virtqueue with split rings, in the memory of a guest.

use std::sync::atomic::{Ordering, fence};
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

/// Longest chain of descriptors: those of the largest request ([`super::block::SEGMENTS`]), its header and its status.
pub(super) const PARTS_MAX: usize = super::block::SEGMENTS as usize + 2;
/// Largest queue, in descriptors.
pub(super) const SIZE_MAX: u16 = 1024;

const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
const INDIRECT: u16 = 4;
/// Flag of the available ring: the driver wants no interrupt.
const NO_INTERRUPT: u16 = 1;
const DESCRIPTOR: u64 = 16;

/// A queue whose driver broke a rule so that nothing more can be known about it. The text says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken(pub &'static str);

const OUTSIDE: Broken = Broken("a ring or a table outside of the memory");

/// A part of a request's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub at: GuestAddress,
    pub len: u32,
    /// For the device to write; else to read.
    pub writable: bool,
}

/// The rings.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Descriptors; 0 if the driver has not said.
    pub size: u16,
    /// Addresses of descriptor table, available ring and used ring.
    pub at: Option<[GuestAddress; 3]>,
    /// The sides tell each other at which index they want to hear of the next change.
    pub event_idx: bool,
    /// Index of the next entry of the available ring.
    pub available: u16,
    /// Index of the next entry of the used ring.
    pub used: u16,
    /// `used` when the driver was last interrupted, or did not want to be.
    pub told: u16,
}

fn beyond(base: GuestAddress, bytes: u64) -> Result<GuestAddress, Broken> {
    base.checked_add(bytes).ok_or(OUTSIDE)
}

fn load(mem: &GuestMemoryMmap, base: GuestAddress, bytes: u64) -> Result<u16, Broken> {
    let value = mem.load::<u16>(beyond(base, bytes)?, Ordering::Acquire);
    value.map(u16::from_le).map_err(|_| OUTSIDE)
}

fn store(mem: &GuestMemoryMmap, base: GuestAddress, bytes: u64, to: u16) -> Result<(), Broken> {
    mem.store(to.to_le(), beyond(base, bytes)?, Ordering::Release)
        .map_err(|_| OUTSIDE)
}

impl Ring {
    fn at(&self) -> Result<[GuestAddress; 3], Broken> {
        self.at.ok_or(Broken("a queue without addresses"))
    }

    /// Whether the driver has described the queue.
    pub fn is_described(&self) -> bool {
        self.size > 0 && self.at.is_some()
    }

    /// Takes the number of used entries from the ring, where the device before this one left it.
    pub fn find_used(&mut self, mem: &GuestMemoryMmap) -> Result<(), Broken> {
        let [_, _, used] = self.at()?;
        self.used = load(mem, used, 2)?;
        self.told = self.used;
        Ok(())
    }

    /// The first descriptor of the next request, if there is one. It is taken by [`Ring::advance`].
    pub fn peek(&self, mem: &GuestMemoryMmap) -> Result<Option<u16>, Broken> {
        let [_, available, _] = self.at()?;
        let waiting = load(mem, available, 2)?.wrapping_sub(self.available);
        if waiting > self.size {
            return Err(Broken("more requests than the queue has descriptors"));
        }
        if waiting == 0 {
            return Ok(None);
        }
        let place = u64::from(self.available % self.size);
        let head = load(mem, available, 4 + 2 * place)?;
        if head >= self.size {
            return Err(Broken("a request whose descriptor is not in the table"));
        }
        Ok(Some(head))
    }

    /// The request that [`Ring::peek`] showed is taken.
    pub fn advance(&mut self) {
        self.available = self.available.wrapping_add(1);
    }

    /// Asks the driver to tell of the next request. Returns whether there is one already.
    pub fn listen(&self, mem: &GuestMemoryMmap) -> Result<bool, Broken> {
        let [_, available, used] = self.at()?;
        if self.event_idx {
            store(mem, used, 4 + 8 * u64::from(self.size), self.available)?;
        }
        // The driver looks after it has written the index, so one of the two sees what the other wrote.
        fence(Ordering::SeqCst);
        Ok(load(mem, available, 2)? != self.available)
    }

    /// The memory of the request that begins with descriptor `head`.
    pub fn chain(
        &self,
        mem: &GuestMemoryMmap,
        head: u16,
        parts: &mut Vec<Part>,
    ) -> Result<(), Broken> {
        parts.clear();
        let [mut table, ..] = self.at()?;
        let (mut size, mut index, mut is_indirect) = (u32::from(self.size), u32::from(head), false);
        loop {
            if index >= size {
                return Err(Broken("a descriptor that is not in its table"));
            }
            let mut d = [0; DESCRIPTOR as usize];
            mem.read_slice(&mut d, beyond(table, DESCRIPTOR * u64::from(index))?)
                .map_err(|_| OUTSIDE)?;
            let [a, b, c, e, f, g, h, i, l0, l1, l2, l3, f0, f1, n0, n1] = d;
            let at = GuestAddress(u64::from_le_bytes([a, b, c, e, f, g, h, i]));
            let len = u32::from_le_bytes([l0, l1, l2, l3]);
            let flags = u16::from_le_bytes([f0, f1]);
            if flags & INDIRECT != 0 {
                if is_indirect || flags & NEXT != 0 || !len.is_multiple_of(DESCRIPTOR as u32) {
                    return Err(Broken("a table of descriptors in the wrong place"));
                }
                (table, size, index, is_indirect) = (at, len / DESCRIPTOR as u32, 0, true);
                continue;
            }
            if parts.len() == PARTS_MAX {
                return Err(Broken(
                    "a chain of descriptors that is too long, or a circle",
                ));
            }
            let writable = flags & WRITABLE != 0;
            if !writable && parts.last().is_some_and(|p| p.writable) {
                return Err(Broken("a part to read after one to write"));
            }
            parts.push(Part { at, len, writable });
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = u32::from(u16::from_le_bytes([n0, n1]));
        }
    }

    /// Gives the request back to the driver, with so many bytes written to its memory.
    pub fn push_used(
        &mut self,
        mem: &GuestMemoryMmap,
        head: u16,
        bytes: u32,
    ) -> Result<(), Broken> {
        let [_, _, used] = self.at()?;
        let place = u64::from(self.used % self.size.max(1));
        let [i0, i1, i2, i3] = u32::from(head).to_le_bytes();
        let [b0, b1, b2, b3] = bytes.to_le_bytes();
        let entry = [i0, i1, i2, i3, b0, b1, b2, b3];
        mem.write_slice(&entry, beyond(used, 4 + 8 * place)?)
            .map_err(|_| OUTSIDE)?;
        self.used = self.used.wrapping_add(1);
        store(mem, used, 2, self.used)
    }

    /// Whether the driver ever wants to be told.
    pub fn wants_interrupts(&self, mem: &GuestMemoryMmap) -> Result<bool, Broken> {
        let [_, available, _] = self.at()?;
        Ok(self.event_idx || load(mem, available, 0)? & NO_INTERRUPT == 0)
    }

    /// Whether the driver wants to be told of what was given back since the last call.
    pub fn must_tell(&mut self, mem: &GuestMemoryMmap) -> Result<bool, Broken> {
        let [_, available, _] = self.at()?;
        fence(Ordering::SeqCst);
        let before = std::mem::replace(&mut self.told, self.used);
        if !self.event_idx {
            return self.wants_interrupts(mem);
        }
        let wanted = load(mem, available, 4 + 2 * u64::from(self.size))?;
        Ok(self.used.wrapping_sub(wanted).wrapping_sub(1) < self.used.wrapping_sub(before))
    }
}
