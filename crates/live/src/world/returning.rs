//! A member whose server is killed and comes back (`isotherm-store`): its operations wait, as on a member that hangs, and go to the successor.
//!
//! ```text
//! operation ─► ENOTCONN ─► away ───────────────── issued again ─► …
//!                            └► a thread looks for the successor ─┘   other lineage: EIO, for good
//! ```
//! That loses nothing, because each write that was answered outlives such a server: the successor has it, and a flush that is issued again
//! covers it. An operation without an answer may have been carried out, and is carried out again; what the engine issues at a time does not
//! overlap. The server of a volume (`isotherm serve`) is none of these: it may forget what no flush has covered.

use super::{Command, UringWorld};
use crate::device::Device;
use crate::error::ErrorKind;
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval at which a successor is looked for.
const LOOK: Duration = Duration::from_millis(250);

/// See the module.
#[derive(Default)]
pub(super) struct Away {
    /// What the successor must show; `None`: none is waited for.
    lineage: Option<String>,
    waiting: Vec<u32>,
    stamp: bool,
    /// While a thread looks for the successor: set, it ends.
    search: Option<Arc<AtomicBool>>,
}

impl Drop for Away {
    fn drop(&mut self) {
        if let Some(over) = &self.search {
            over.store(true, Ordering::Relaxed);
        }
    }
}

impl Away {
    pub(super) fn of(device: Option<&Device>) -> Away {
        let mut away = Away::default();
        away.lineage = device.and_then(Device::lineage);
        away
    }

    pub(super) fn take_all(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.waiting)
    }
}

/// The error of a FUSE file whose server has ended. No server can answer with it.
fn is_cut(error: Option<Errno>) -> bool {
    matches!(error, Some(Errno::NOTCONN | Errno::CONNABORTED))
}

impl UringWorld {
    /// Whether an operation that has failed so waits for the return of its member.
    pub(super) fn waits_for_return(&mut self, id: u32, error: Option<Errno>) -> bool {
        let member = usize::from(self.flight(id).op.member.0);
        let waits = is_cut(error) && self.look_for_successor(member);
        if waits {
            self.members[member].away.waiting.push(id);
        }
        waits
    }

    /// As [`UringWorld::waits_for_return`], for the activity stamp.
    pub(super) fn stamp_waits_for_return(&mut self, error: Option<Errno>) -> bool {
        let Some(member) = self.heartbeat.as_ref().map(super::Heartbeat::member) else {
            return false;
        };
        let waits = is_cut(error) && self.look_for_successor(member);
        if waits {
            self.members[member].away.stamp = true;
        }
        waits
    }

    /// Whether the stamp waits for the return of its member.
    pub(super) fn stamp_is_away(&self) -> bool {
        self.members.iter().any(|m| m.away.stamp)
    }

    /// Starts the thread that looks for the successor, if there can be one.
    fn look_for_successor(&mut self, member: usize) -> bool {
        let away = &mut self.members[member].away;
        let Some(lineage) = away.lineage.clone() else {
            return false;
        };
        if away.search.is_some() {
            return true;
        }
        let over = Arc::<AtomicBool>::default();
        let (ends, devices, inbox) = (
            Arc::clone(&over),
            Arc::clone(&self.devices),
            Arc::clone(&self.inbox),
        );
        let search = move || {
            while !ends.load(Ordering::Relaxed) {
                let found = match &devices[member] {
                    Some(device) => device.succeed(&lineage),
                    None => return,
                };
                let lost = match found {
                    Ok(()) => None,
                    Err(e) if e.kind == ErrorKind::Volume => Some(e.to_string()),
                    Err(_) => {
                        std::thread::sleep(LOOK);
                        continue;
                    }
                };
                drop(devices);
                let tell: Command = Box::new(move |_, world| world.returned(member, lost));
                inbox.command(tell);
                return;
            }
        };
        let thread = std::thread::Builder::new().name("isotherm-return".into());
        if thread.spawn(search).is_err() {
            return false;
        }
        tracing::warn!(
            "member {member}: its server has ended: what needs it waits for the next one"
        );
        away.search = Some(over);
        true
    }

    /// The successor is there; `lost`: it has not what it should have.
    fn returned(&mut self, member: usize, lost: Option<String>) {
        let fd = self.devices[member].as_ref().map(|d| d.file.as_raw_fd());
        let registered = fd.map_or(Ok(0), |fd| {
            let place = member as u32;
            self.ring.submitter().register_files_update(place, &[fd])
        });
        let lost = lost.or(registered
            .err()
            .map(|e| format!("io_uring does not accept it: {e}")));
        let away = &mut self.members[member].away;
        away.search = None;
        if let Some(why) = &lost {
            tracing::error!("member {member}: {why}");
            away.lineage = None;
        } else {
            tracing::warn!("member {member}: its server is there again");
        }
        let stamp = std::mem::take(&mut away.stamp);
        // Without a successor they fail at once, and so do all later ones.
        for id in away.take_all() {
            self.pass(id);
        }
        if stamp {
            self.issue_stamp();
        }
    }
}
