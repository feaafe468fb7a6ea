//! Changes of the members while no operation is in progress (`reopen.rs`).

use super::{UringWorld, faults};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::paced::Pacer;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for a thread that has told its result and has a moment left to live.
const THREAD_ENDS: Duration = Duration::from_secs(2);

impl UringWorld {
    /// The members' devices.
    pub(crate) fn devices(&self) -> &Arc<Vec<Option<Device>>> {
        &self.devices
    }

    /// The members' devices, to be changed. Their files stay registered with the ring.
    ///
    /// # Errors
    /// Another thread uses them: it sends a disk to sleep.
    pub(crate) fn devices_mut(&mut self) -> Result<&mut Vec<Option<Device>>, Error> {
        let begun = Instant::now();
        while Arc::get_mut(&mut self.devices).is_none() && begun.elapsed() < THREAD_ENDS {
            std::thread::sleep(Duration::from_millis(1));
        }
        Arc::get_mut(&mut self.devices).ok_or_else(|| {
            let what = "a disk is being sent to sleep just now: try again";
            Error::new(ErrorKind::InUse, what)
        })
    }

    /// The members have their present sizes from now on, and those with `Some` another model or none.
    pub(crate) fn members_changed(&mut self, pacers: impl Iterator<Item = Option<Option<Pacer>>>) {
        for ((member, device), pacer) in self.members.iter_mut().zip(&*self.devices).zip(pacers) {
            member.keep = device.as_ref().and_then(faults::size_to_keep);
            if let Some(pacer) = pacer {
                member.pacer = pacer;
            }
        }
        self.paced = self.members.iter().any(|m| m.pacer.is_some());
    }
}
