//! Operations on a member of two devices (`device/joined.rs`). An operation that reaches from one device to the other is a short one for the
//! engine, which issues the rest; a flush goes to one device after the other.

use super::flight::Flight;
use super::{MemberState, UringWorld};
use crate::device::{Device, Part, first_part};
use crate::mutants::{LiveMutant, broken};
use io_uring::types;
use isotherm_core::OpKind;
use std::os::fd::{AsRawFd, RawFd};

/// The files of the ring: that of each member at its place, and behind all of them that of each tail device. A file that is absent is -1.
pub(super) fn files(devices: &[Option<Device>]) -> Vec<RawFd> {
    let data = devices.iter().map(Option::as_ref);
    let tails = devices.iter().map(|d| d.as_ref().and_then(Device::tail));
    data.chain(tails)
        .map(|d| d.map_or(-1, |d| d.file.as_raw_fd()))
        .collect()
}

impl UringWorld {
    /// The part of an operation that is issued next, and the file that it goes to.
    pub(super) fn next_part(&mut self, id: u32) -> (Part, types::Fixed) {
        let f = self.flight(id);
        let (op, skip, on_tail) = (f.op, f.zeroed.unwrap_or(0), f.on_tail);
        let member = usize::from(op.member.0);
        let boundary = self.members[member].boundary;
        let (at, len) = (op.offset + u64::from(skip), u64::from(op.len - skip));
        let mut part = first_part(boundary, at, len);
        if op.kind == OpKind::Flush {
            part.on_tail = on_tail;
        }
        let behind = if part.on_tail { self.members.len() } else { 0 };
        (part, types::Fixed((behind + member) as u32))
    }

    /// Whether a flush has reached only the first device of its member. Then it goes on with the other.
    pub(super) fn flushes_tail(&mut self, id: u32, res: i32) -> bool {
        let Flight { op, on_tail, .. } = *self.flight(id);
        let has_tail = self.members[usize::from(op.member.0)].boundary.is_some();
        let more = op.kind == OpKind::Flush && res >= 0 && has_tail && !on_tail;
        if more && !broken(LiveMutant::FlushDataAlone) {
            self.flight(id).on_tail = true;
            self.pass(id);
            return true;
        }
        false
    }
}

impl MemberState {
    /// Whether the tail device was cut short. Only a file of a local file system is looked at.
    pub(super) fn has_short_tail(&self, device: &Device) -> bool {
        let tail = device.tail().filter(|_| self.keep.is_some());
        tail.is_some_and(|t| {
            !t.is_block && super::faults::bytes_of(&t.file).is_some_and(|now| now < t.bytes)
        })
    }
}
