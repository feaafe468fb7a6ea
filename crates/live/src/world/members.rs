//! Changes of the members while no operation is in progress (`reopen.rs`).

use super::{MemberState, UringWorld, joined};
use crate::copying::stale::Stale;
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::paced::Pacer;
use isotherm_core::Request;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for a thread that has told its result and has a moment left to live.
const THREAD_ENDS: Duration = Duration::from_secs(2);

/// Events on a member that only the world knows. The engine counts operations and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberStats {
    /// Number of operations that failed.
    pub errors: u64,
    /// `errno` of the last failure.
    pub last_errno: Option<i32>,
    /// Number of times that it was sent to sleep.
    pub standbys: u64,
    /// Whether the device refuses discards.
    pub no_discard: bool,
}

impl UringWorld {
    /// The members' devices, in the order of the member list.
    pub(crate) fn devices(&self) -> &Arc<Vec<Option<Device>>> {
        &self.devices
    }

    /// Sizes of the members' devices in bytes; `None` for one that is missing.
    pub fn member_bytes(&self) -> Vec<Option<u64>> {
        (self.devices.iter().map(|d| Some(d.as_ref()?.bytes))).collect()
    }

    /// Whether no other thread uses the members' devices.
    pub(crate) fn has_devices_alone(&mut self) -> bool {
        Arc::get_mut(&mut self.devices).is_some()
    }

    /// The members' devices, to be changed. Their files stay registered with the ring until [`UringWorld::members_changed`].
    ///
    /// # Errors
    /// Another thread uses them: it sends a disk to sleep, or reads all data.
    pub(crate) fn devices_mut(&mut self) -> Result<&mut Vec<Option<Device>>, Error> {
        let begun = Instant::now();
        while Arc::get_mut(&mut self.devices).is_none() && begun.elapsed() < THREAD_ENDS {
            std::thread::sleep(Duration::from_millis(1));
        }
        Arc::get_mut(&mut self.devices).ok_or_else(|| {
            let what =
                "a disk is being sent to sleep, or a check reads all data just now: try again";
            Error::new(ErrorKind::InUse, what)
        })
    }

    /// From now on the ends of writes to a member are noted there, or nowhere. Those in progress are noted, too.
    pub(crate) fn watch_writes(&mut self, member: usize, stale: Option<Arc<Stale>>) {
        if let Some(device) = self.devices.get(member).and_then(Option::as_ref) {
            device.watch_writes(stale.clone());
        }
        if let Some(member) = self.members.get_mut(member) {
            member.stale = stale;
        }
    }

    /// The volume can lose these members, one bit each (`cache_end.rs`).
    pub(crate) fn can_lose(&mut self, members: u32) {
        self.can_lose = members;
    }

    /// Whether no operation is in progress, and none has ended of which the engine does not know.
    pub(crate) fn is_idle(&self) -> bool {
        self.flights.iter().all(Option::is_none) && self.ready.is_empty()
    }

    /// The requests without an answer.
    pub(crate) fn unanswered(&mut self) -> Vec<Request> {
        self.requests.unanswered()
    }

    /// Operations go to the present devices from now on. Members have their present sizes, and those with `Some` another model or none.
    ///
    /// # Errors
    /// The kernel does not accept the new files.
    pub(crate) fn members_changed(
        &mut self,
        pacers: impl Iterator<Item = Option<Option<Pacer>>>,
    ) -> Result<(), Error> {
        let devices = Arc::clone(&self.devices);
        let files = joined::files(&devices);
        if self.members.len() != devices.len() {
            self.other_number(&devices, &files)?;
        }
        for (i, (device, pacer)) in devices.iter().zip(pacers).enumerate() {
            let fd = device.as_ref().map(|d| d.file.as_raw_fd());
            if self.members[i].fd != fd {
                for place in [i, devices.len() + i] {
                    let file = &files[place..=place];
                    let registered = self
                        .ring
                        .submitter()
                        .register_files_update(place as u32, file);
                    registered.map_err(|e| {
                        let what = format!("io_uring does not accept the new device: {e}");
                        Error::new(ErrorKind::System, what)
                    })?;
                }
                self.members[i] = MemberState {
                    pacer: self.members[i].pacer.take(),
                    ..MemberState::default()
                };
                self.forget_vital(i);
            }
            let member = &mut self.members[i];
            member.look_at(device.as_ref());
            if let Some(pacer) = pacer {
                member.pacer = pacer;
            }
        }
        self.paced = self.members.iter().any(|m| m.pacer.is_some());
        self.register_vitals();
        Ok(())
    }

    /// There is another number of members: those that stay go to their places, and the ring gets all files anew.
    fn other_number(&mut self, devices: &[Option<Device>], files: &[RawFd]) -> Result<(), Error> {
        let submitter = self.ring.submitter();
        let registered = submitter
            .unregister_files()
            .and_then(|()| submitter.register_files(files));
        registered.map_err(|e| {
            let what = format!("io_uring does not accept the devices: {e}");
            Error::new(ErrorKind::System, what)
        })?;
        let vitals = std::mem::take(&mut self.vitals.locked().members);
        let mut before: Vec<_> = std::mem::take(&mut self.members)
            .into_iter()
            .zip(vitals)
            .collect();
        let mut found = Vec::new();
        for device in devices {
            let fd = device.as_ref().map(|d| d.file.as_raw_fd());
            let at = before.iter().position(|(m, _)| m.fd == fd);
            let (member, vital) = at.map(|at| before.remove(at)).unwrap_or_default();
            self.members.push(member);
            found.push(vital);
        }
        self.vitals.locked().members = found;
        Ok(())
    }
}
