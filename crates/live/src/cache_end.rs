//! The end of a cache whose flash fails while the volume is served: the volume goes on with its disks, and no request is lost.
//!
//! ```text
//! a round fails on flash, or flash cannot be stamped ─► nothing reaches the engine any more ─► operations in progress end
//!    ─► the stamp moves to a disk ─► what only flash has is written to the disks (`store::salvage`) ─► flash is left out
//!    ─► store::open without it, which raises the generation ─► a new engine ─► every request without an answer once more
//! ```
//! A request that was not answered may have been carried out in part. Doing all of it again is right: its range has no other contents yet than
//! those before it, its own, and those of requests that were in progress at the same time.
//!
//! Dirty data that flash does not give back, or all of it if a flush of flash failed, is lost. It is listed on the disks before the next answer,
//! and reading it is an error until it is written again. Some of it may have been answered and never flushed, so each FLUSH without an answer
//! fails, or if there is none, the next one.
//!
//! If a disk fails meanwhile, nothing of this happens: the volume has failed, as after any failed round, and is read until it is stopped.

use crate::error::{Error, ErrorKind};
use crate::loss::Listed;
use crate::media::FileMedia;
use crate::mutants::{LiveMutant, broken};
use crate::server::Session;
use crate::volume::flash::{flash, salvage};
use crate::volume::{OpenMode, in_words};
use isotherm_core::run::Host;
use isotherm_core::store::Superblock;
use isotherm_core::store::salvage::Salvaged;
use isotherm_core::volume::lost::LostPart;
use isotherm_core::{Event, MemberId, Request, RequestOp, World};
use isotherm_events::Ending;
use std::sync::Arc;

/// The flash that a volume with this superblock, served in this mode, can lose: one bit for each member.
pub(crate) fn can_lose(sb: &Superblock, mode: OpenMode) -> u32 {
    if mode == OpenMode::ReadOnly {
        return 0;
    }
    let present = flash(sb).into_iter().filter(|m| !sb.is_absent(*m));
    present.fold(0, |all, m| all | 1 << m.0)
}

impl Session {
    /// Whether flash failed, and it is not yet decided how the volume goes on.
    fn has_lost_cache(&self) -> bool {
        self.engine.has_lost_cache() || self.world.waits_for_stamp()
    }

    /// Ends the cache if its flash has failed and no operation is in progress. Call it after every step.
    pub(crate) fn end_cache_if_due(&mut self) {
        if !self.has_lost_cache() {
            return;
        }
        let withheld = self.withheld.get_or_insert_with(Vec::new);
        if let Some(r) = self.reopening.take() {
            withheld.extend(r.held.into_iter().map(Event::Arrived));
            (r.purpose).refuse("flash failed: the volume is about to go on without it");
        }
        // A check of all data uses the devices, too, and gives them back after each part.
        if !self.world.is_idle() || !self.world.has_devices_alone() {
            return;
        }
        self.engine.end_recording(Ending::Untold);
        let withheld = self.withheld.take().unwrap_or_default();
        let lost = flash(&self.superblock);
        let paths = lost
            .iter()
            .filter_map(|m| self.config.members.get(usize::from(m.0)));
        let named: Vec<String> = paths.map(|m| m.path.display().to_string()).collect();
        let named = named.join(", ");
        match self.salvage(&lost) {
            Ok(done) => match self.leave_flash(&lost, &done.lost) {
                Ok(()) => {
                    tracing::warn!(
                        "{named}: flash failed: the cache has ended, and the volume goes on with its disks ({} bytes that only flash had are there now); `isotherm replace` gives it another device",
                        done.bytes
                    );
                    if let Some(note) = Listed::of(self.engine.space()).note() {
                        tracing::error!("{note}");
                    }
                    self.ask_again(!done.lost.is_empty());
                }
                Err(e) => {
                    // As after any failed opening, nothing can be served. What waits is refused with the end of the world, which
                    // comes now: the old engine would wait for operations that were forgotten.
                    self.world.refuse_from_now_on();
                    self.lost = Some(e);
                }
            },
            Err(e) => {
                tracing::warn!(
                    "{named}: flash failed, and the volume cannot go on without it: {e}"
                );
                self.fail_with_cache(withheld);
            }
        }
    }

    /// Moves the stamp and what only flash has to the disks.
    pub(crate) fn salvage(&mut self, lost: &[MemberId]) -> Result<Salvaged, Error> {
        let trusted = !self.engine.has_lost_flush() || broken(LiveMutant::TrustUnflushedFlash);
        let disk = self.superblock.primary_without(lost);
        let disk = disk.ok_or_else(|| Error::new(ErrorKind::Volume, "the volume has no disk"))?;
        self.world.move_stamp(usize::from(disk.0))?;
        let stamping = self.world.stamp_meanwhile()?;
        let devices = Arc::clone(self.world.devices());
        let mut media = FileMedia::watched(&devices, &self.handle.vitals);
        let volume = (&self.superblock, self.engine.space());
        let done = salvage(&mut media, volume, trusted);
        let done = done.map_err(|e| in_words(&self.config, &media, e));
        self.world.stamped_meanwhile(stamping)?;
        done
    }

    /// Begins with an engine that has only the disks. From here on there is no way back.
    fn leave_flash(&mut self, lost: &[MemberId], data: &[LostPart]) -> Result<(), Error> {
        let devices = self.world.devices_mut()?;
        for m in lost {
            devices[usize::from(m.0)] = None;
        }
        self.world.forget_fault();
        self.world.forget_held();
        self.begin_without_flash(data)?;
        self.tell_listed();
        self.handle.leave_out(lost);
        Ok(())
    }

    /// Passes every request without an answer to the engine, unless it is a FLUSH that must fail because data is lost.
    fn ask_again(&mut self, has_lost: bool) {
        let owes = has_lost && !broken(LiveMutant::FlushAfterLoss);
        if !broken(LiveMutant::ForgetWaiting) {
            let all = self.world.unanswered();
            let is_flush = |r: &Request| r.op == RequestOp::Flush;
            let any_flush = all.iter().any(is_flush);
            for request in all {
                self.owes_error = owes;
                self.submit_admitted(request);
            }
            self.owes_error = owes && !any_flush;
        }
        if self.closing {
            let now = self.world.now();
            self.call(|engine, out| engine.close(now, out));
        }
    }

    /// The volume has failed with its flash. The engine goes on as after any failed round, with the events that it did not get.
    fn fail_with_cache(&mut self, withheld: Vec<Event>) {
        self.world.give_up_stamp();
        let now = self.world.now();
        self.call(|engine, out| engine.go_on_without_guarantee(now, out));
        for event in withheld {
            self.tell(event);
        }
    }
}
