//! A queue and the requests that its guest waits for.

use super::block;
use super::inflight::Marks;
use super::ring::{Broken, Part, Ring};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use vm_memory::GuestMemoryMmap;

/// A queue and the requests that its guest waits for.
#[derive(Default)]
pub(super) struct Queue {
    pub ring: Ring,
    pub call: Option<File>,
    pub error: Option<File>,
    pub enabled: bool,
    /// The eventfd of the guest, which is watched as long as the queue runs.
    pub kick: Option<File>,
    /// Whether requests are taken from it.
    pub runs: bool,
    pub marks: Option<Marks>,
    pub slots: Vec<Slot>,
    pub in_flight: u16,
    /// Requests that an earlier server took and did not give back.
    pub again: VecDeque<u16>,
    /// Whether requests were given back of which the guest was not told.
    pub owes_call: bool,
}

/// The request that begins with a descriptor.
#[derive(Default)]
pub(super) struct Slot {
    pub parts: Vec<Part>,
    pub is_in_flight: bool,
}

impl Queue {
    /// Gives a request back to the guest, with the status and the data that it asked for.
    pub fn answer(
        &mut self,
        memory: &GuestMemoryMmap,
        head: u16,
        status: u8,
        data: Option<&[u8]>,
    ) -> Result<(), Broken> {
        let slot = &mut self.slots[usize::from(head)];
        slot.is_in_flight = false;
        self.in_flight -= 1;
        self.owes_call = true;
        let mut written = 0;
        if let Some((to, to_status)) = block::to_write(&slot.parts) {
            let mut status = status;
            match data {
                Some(data) if to.copy_from(memory, data) => written = data.len() as u32,
                Some(_) => status = block::status::ERROR,
                None => {}
            }
            if to_status.copy_from(memory, &[status]) {
                written += 1;
            }
        }
        if let Some(marks) = &mut self.marks {
            marks.before_used(head);
        }
        self.ring.push_used(memory, head, written)?;
        if let Some(marks) = &mut self.marks {
            marks.after_used(head, self.ring.used);
        }
        Ok(())
    }

    /// Interrupts the guest.
    pub fn tell(&self) {
        if let Some(mut call) = self.call.as_ref() {
            // This fails only if the counter is full, and then the guest has an interrupt to come.
            let _ = call.write(&1u64.to_ne_bytes());
        }
    }

    /// Interrupts the guest if it wants to know of what was given back. (If that cannot be known, the next request fails.)
    pub fn settle(&mut self, memory: &GuestMemoryMmap) {
        if std::mem::take(&mut self.owes_call) && self.ring.must_tell(memory).unwrap_or(true) {
            self.tell();
        }
    }
}

/// Prepares an eventfd of a peer, to which the engine's thread will write: it must never wait there.
///
/// # Errors
/// The system refuses.
pub(super) fn never_waits(file: File) -> io::Result<File> {
    fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
    Ok(file)
}
